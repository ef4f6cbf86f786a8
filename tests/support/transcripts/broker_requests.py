"""What clients ask of whole brokers.

| stimulus | what happens |
|---|---|
| create B A key=value | topic t with one partition on these brokers, preferred leader first; with these configs |
| delete | topic t is deleted |
| produce m1 m2 acks=1 | each value in a batch of its own; `together`: all in one |
| resend 7 m1 | an idempotent producer sends this value as number 7, in a request of its own, to whoever leads |
| read | everything that a consumer is shown |
| delete-records 17 | what lies before this offset |
| move B C | t-0 is to be held by these brokers; `back`: cancel what is under way |
| check | all replicas are in sync and equal; what was acknowledged and is not there, nor deleted, is named |
"""

from __future__ import annotations

from functools import partial

from strandline.client import TrioProducer
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from strandline.protocol.records import build_batch
from strandline.protocol.types import TopicPartition
from strandline.protocol.znodes import TopicZnode
from strandline.testkit.inspection import log_bytes, read_all
from support.transcripts.broker_stage import T0, BrokerStage
from support.transcripts.replica_look import values_text
from support.transcripts.stage import Verb
from support.transcripts.text import gather, spread

Words = list[str]
Options = dict[str, str]
PRODUCER_ID = 4711


# --- topics -----------------------------------------------------------------------------------------------------------


async def create(stage: BrokerStage, words: Words, options: Options) -> None:
    replicas = stage.names.ids(words)

    async def created() -> str:
        await stage.admin.create_topic(T0.topic, assignments={0: replicas}, configs=options, timeout_ms=5_000)
        return "done"

    await stage.ask("create", created)


async def delete(stage: BrokerStage, words: Words, options: Options) -> None:
    async def deleted() -> str:
        await stage.admin.delete_topic(T0.topic)
        return "done"

    await stage.ask("delete", deleted)


async def delete_records(stage: BrokerStage, words: Words, options: Options) -> None:
    async def deleted() -> str:
        return f"log start {(await stage.admin.delete_records({T0: int(words[0])}))[T0]}"

    await stage.ask("delete-records", deleted)


async def move(stage: BrokerStage, words: Words, options: Options) -> None:
    targets = None if words == ["back"] else stage.names.ids(words)

    async def accepted() -> str:
        refusal = (await stage.admin.alter_partition_reassignments({T0: targets}))[T0]
        if refusal is not None:
            raise refusal
        return "accepted"

    await stage.ask("move", accepted)


# --- records ----------------------------------------------------------------------------------------------------------


async def produce(stage: BrokerStage, words: Words, options: Options) -> None:
    acks = options.get("acks", "all")
    producer = await stage.producer(acks)
    values = [value.encode() for value in spread(words) if value != "together"]
    batches = [values] if "together" in words else [[value] for value in values]
    await stage.ask(values_text(values), partial(_deliver, stage, producer, acks, batches))


async def _deliver(stage: BrokerStage, producer: TrioProducer, acks: str, batches: list[list[bytes]]) -> str:
    offsets: list[int] = []
    for batch in batches:
        deliveries = [await producer.send(T0.topic, value, partition=T0.partition) for value in batch]
        for value, delivery in zip(batch, deliveries, strict=True):
            offset = (await delivery).offset
            offsets.append(offset)
            if acks == "all":
                stage.acked.append((offset, value))
    return f"{'acknowledged' if acks == 'all' else 'written'} at {' '.join(gather(map(str, offsets)))}"


async def resend(stage: BrokerStage, words: Words, options: Options) -> None:
    sequence, value = words

    async def answered() -> str:
        client = await stage.connection(stage.cluster.leader(T0))
        records = bytes(build_batch([(1000, None, value.encode())], producer=(PRODUCER_ID, 0, int(sequence))))
        data = [TopicProduceData(T0.topic, [PartitionProduceData(T0.partition, len(records))])]
        response = await client.request(ProduceRequest(-1, 5_000, data), attachments=records)
        if response is None:
            return "no answer"
        assert isinstance(response.message, ProduceResponse)
        (outcome,) = response.message.responses[0].partition_responses
        if outcome.error_code:
            return ErrorCode(outcome.error_code).name
        return f"acknowledged at {outcome.base_offset}"

    await stage.ask(f"{value} (number {sequence})", answered)


async def read(stage: BrokerStage, words: Words, options: Options) -> None:
    async def shown() -> str:
        async with stage.cluster.consumer() as consumer:
            found = await read_all(consumer, T0)
        return f"{values_text(found.values())}, from {min(found)} on" if found else "nothing"

    await stage.ask("a consumer reads", shown)


# --- the end ----------------------------------------------------------------------------------------------------------


async def check(stage: BrokerStage, words: Words, options: Options) -> None:
    cluster = stage.cluster
    replicas = sorted(_replicas(stage, T0))
    await cluster.until(lambda: cluster.isr(T0) == replicas, "all replicas are in sync", within_s=60)
    async with cluster.consumer() as consumer:
        found = await read_all(consumer, T0)
    leader = cluster.partition(cluster.leader(T0), T0)
    images = {log_bytes(log, leader.high_watermark) for log in cluster.logs(T0).values()}
    start = leader.log.log_start_offset
    lost = [value for offset, value in stage.acked if offset >= start and found.get(offset) != value]
    stage.tell(
        f"{stage.names.text(replicas)} are in sync and {'equal' if len(images) == 1 else 'differ'}; "
        + (f"acknowledged and lost: {values_text(lost)}" if lost else "nothing that was acknowledged is lost")
    )


def _replicas(stage: BrokerStage, tp: TopicPartition) -> list[int]:
    znode = TopicZnode.decode(tp.topic, stage.cluster.zookeeper.tree.get(TopicZnode.path(tp.topic)).data)
    return znode.partitions[tp.partition]


VERBS: dict[str, Verb] = {
    verb.__name__.replace("_", "-"): verb
    for verb in (create, delete, delete_records, move, produce, resend, read, check)
}
