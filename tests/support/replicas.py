"""Replicas of one partition without network, ZooKeeper or controller: the test is all three, step by step.

```
cluster = await ScriptedReplicas.start("ABC")
await cluster.lead("A", epoch=0)                    # LeaderAndIsr to everybody, or to whom `tell` names
ack = cluster.produce("A", b"m1")                   # ack.error_code is None until answered
question = cluster.ask("B")                         # B's next fetch, from its log as it is now
answer = cluster.answer("A", question)              # what A says to it, now
cluster.take(question, answer)                      # … and when B hears it
cluster.fetch("B")                                  # the three at once, from whom B follows
proposal = cluster.proposals["A"]                   # an ISR change on its way to ZooKeeper, for as long as you like
```
Everything else is the broker's own code: `DataPlane` with its handlers, `Fetcher`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import msgspec
import structlog
import trio

from strandline.broker.data_plane import DataPlane
from strandline.broker.network.connection import Connection
from strandline.broker.network.dialects.native import name_sizes
from strandline.broker.network.request import AnswerHook, RequestInHand
from strandline.broker.network.request_context import RequestContext
from strandline.broker.replication.follower import Fetcher
from strandline.broker.replication.held_fetches import FetchPlan
from strandline.broker.replication.isr_updates import IsrOutcome, apply_outcome
from strandline.broker.replication.leadership import IsrProposal
from strandline.broker.replication.partition import Partition
from strandline.protocol.messages import (
    FetchPartition,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    Message,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    UpdateMetadataBroker,
    UpdateMetadataRequest,
)
from strandline.protocol.records import build_batch
from strandline.protocol.types import TopicPartition
from strandline.runtime.config.dynamic import CurrentConfig
from strandline.runtime.config.reading import load_broker_config
from strandline.runtime.config.topic import TopicConfig, topic_config
from strandline.runtime.coordination import Coordination
from strandline.runtime.disk import FileRegion
from strandline.runtime.network import Address
from strandline.storage.log.log import Log
from strandline.storage.manager.log_manager import LogManager
from strandline.testkit.disk import MemoryDisk
from strandline.testkit.environment import EPOCH_MS, simulated_environment
from strandline.testkit.inspection import values
from strandline.testkit.network import MemoryNetwork

PARTITION = TopicPartition("t", 0)
TOPIC_ID = bytes(range(16))
CONTROLLER = 99
CONTROLLER_EPOCH = 1
INCARNATION = 1


class _Line:
    """A connection from another broker, as far as handlers look at one."""

    closed = False


class Call:
    """A request in hand whose answer is kept. `response`: None until it is answered."""

    def __init__(self, message: Message, attachments: bytearray | None = None) -> None:
        self.message = message
        self.records = (memoryview(attachments),) if attachments is not None else ()
        self.connection = cast(Connection, _Line())
        self.context = RequestContext("PLAINTEXT", True, Address("memory", 1))
        self.hooks: tuple[AnswerHook, ...] = ()
        self.response: Message | None = None
        self.regions: Sequence[FileRegion] = ()

    @property
    def is_abandoned(self) -> bool:
        return self.connection.closed

    def respond(self, message: Message, regions: Sequence[FileRegion | None] = (), *, is_clean: bool = False) -> None:
        assert self.response is None, "a request is answered once"
        self.response = message
        self.regions = [region for region in regions if region is not None]
        if isinstance(message, FetchResponse) and regions:
            name_sizes(message, regions)

    @property
    def fetched(self) -> FetchPartitionData:
        """The answer to a fetch of one partition."""
        assert isinstance(self.response, FetchResponse)
        return self.response.responses[0].partitions[0]

    @property
    def error_code(self) -> int | None:
        """Of a produce request to one partition; None: not answered yet."""
        if self.response is None:
            return None
        assert isinstance(self.response, ProduceResponse)
        return self.response.responses[0].partition_responses[0].error_code


class Question(NamedTuple):
    """A follower's fetch on its way. `asked`: what the follower compares the answer with."""

    follower: str
    fetcher: Fetcher
    request: FetchRequest
    asked: Any


class Answer(NamedTuple):
    response: FetchResponse
    records: bytes

    @property
    def partition(self) -> FetchPartitionData:
        return self.response.responses[0].partitions[0]


@dataclass(eq=False)
class Replica:
    """One broker, reduced to its replicas."""

    data: DataPlane
    disk: MemoryDisk

    def topic_config_of(self, topic: str) -> TopicConfig:
        return topic_config(self.data.replicas.config, {})


class ScriptedReplicas:
    """See the module. Brokers are named by letters: A is broker 1."""

    def __init__(self, names: str, config: Mapping[str, str]) -> None:
        self.names = names
        self._config = dict(config)
        self._brokers: dict[str, Replica] = {}
        self._zk_version = 0

    @classmethod
    async def start(cls, names: str = "ABC", **config: str) -> ScriptedReplicas:
        """config: the brokers' settings, with underscores for dots."""
        cluster = cls(names, {key.replace("_", "."): value for key, value in config.items()})
        for name in names:
            cluster._brokers[name] = cluster._make(name)
        await trio.lowlevel.checkpoint()
        return cluster

    def id_of(self, name: str) -> int:
        return self.names.index(name) + 1

    def restart(self, name: str) -> None:
        """SIGKILL, and a start on the same disk: it hosts nothing until it is told so (`lead`)."""
        disk = self._brokers[name].disk
        disk.kill()
        self._brokers[name] = self._make(name, disk)

    def disk(self, name: str) -> MemoryDisk:
        return self._brokers[name].disk

    def _make(self, name: str, disk: MemoryDisk | None = None) -> Replica:
        broker_id = self.id_of(name)
        config = load_broker_config(
            {
                "broker.id": str(broker_id),
                "zookeeper.connect": "memory:2181",
                "listeners": "PLAINTEXT://memory:9092",
                "log.dirs": "/data",
                **self._config,
            }
        )
        disk = disk or MemoryDisk()
        environment = simulated_environment(disk=disk, network=MemoryNetwork().node(name), node=name)
        log = structlog.wrap_logger(None, processors=[_drop])
        logs = LogManager(
            environment.disk,
            config.log_dirs,
            broker_id=broker_id,
            topic_config_for=lambda _: topic_config(config, {}),
            wall_clock=environment.wall_clock,
            random=environment.random("storage"),
        )
        logs.load()
        data = DataPlane(
            broker_id,
            CurrentConfig(config),
            environment,
            logs,
            cast(Coordination, None),  # what is proposed is held: the task that would ask ZooKeeper does not run
            incarnation=INCARNATION,
            send_answers=lambda: None,
            submit=lambda work: None,
            log=log,
            state_change_log=log,
        )
        brokers = [UpdateMetadataBroker(self.id_of(other), []) for other in self.names]
        data.replicas.update_metadata(UpdateMetadataRequest(CONTROLLER, CONTROLLER_EPOCH, 0, [], brokers))
        return Replica(data, disk)

    # --- the controller ------------------------------------------------------------------------------------------

    async def lead(self, leader: str, *, epoch: int, isr: Iterable[str] | None = None, tell: str | None = None) -> None:
        """LeaderAndIsr: `leader` leads at `epoch` with this ISR (default: all), said to `tell` (default: all). Each
        call is one more version of the state in ZooKeeper."""
        state = LeaderAndIsrPartitionState(
            partition_index=PARTITION.partition,
            controller_epoch=CONTROLLER_EPOCH,
            leader=self.id_of(leader),
            leader_epoch=epoch,
            isr=[self.id_of(name) for name in (self.names if isr is None else isr)],
            partition_epoch=self._zk_version,
            replicas=[self.id_of(name) for name in self.names],
        )
        self._zk_version += 1
        topics = [LeaderAndIsrTopicState(PARTITION.topic, TOPIC_ID, [state])]
        request = LeaderAndIsrRequest(CONTROLLER, CONTROLLER_EPOCH, 0, topics, [])
        for name in self.names if tell is None else tell:
            broker = self._brokers[name]
            await broker.data.roles.become_leader_or_follower(request, broker.topic_config_of)

    # --- ZooKeeper -----------------------------------------------------------------------------------------------

    def proposal(self, leader: str) -> IsrProposal | None:
        """The ISR change that this leader has on its way to ZooKeeper."""
        leadership = self.partition(leader).leadership
        return leadership.proposal if leadership is not None else None

    def accept(self, leader: str) -> None:
        """ZooKeeper takes the leader's proposal, and the leader hears of it."""
        proposal = self.proposal(leader)
        assert proposal is not None, f"{leader} proposes nothing"
        broker = self._brokers[leader]
        self._zk_version = proposal.zk_version + 1
        outcome = IsrOutcome(proposal.isr, self._zk_version)
        apply_outcome(broker.data.burst, self.partition(leader), proposal, outcome)

    # --- replicas ------------------------------------------------------------------------------------------------

    def partition(self, name: str) -> Partition:
        return self._brokers[name].data.replicas.partitions[PARTITION]

    def log(self, name: str) -> Log:
        return self.partition(name).log

    def hosts(self, name: str) -> bool:
        """Whether it was told a role yet."""
        return PARTITION in self._brokers[name].data.replicas.partitions

    def leo(self, name: str) -> int:
        return self.log(name).log_end_offset

    def hw(self, name: str) -> int:
        return self.partition(name).high_watermark

    def isr(self, leader: str) -> str:
        """As this leader knows it, in letters."""
        leadership = self.partition(leader).leadership
        assert leadership is not None, f"{leader} does not lead"
        return "".join(sorted(self.names[member - 1] for member in leadership.isr))

    def values(self, name: str) -> list[bytes | None]:
        return values(self.log(name))

    def check_isrs(self, name: str) -> None:
        """The periodic look for followers that lag."""
        self.partition(name).check_in_sync(trio.current_time())

    # --- clients and followers -----------------------------------------------------------------------------------

    def produce(self, leader: str, *items: bytes, acks: int = -1) -> Call:
        """One batch of these values."""
        batch = bytearray(build_batch([(EPOCH_MS, None, item) for item in items]))
        data = [TopicProduceData(PARTITION.topic, [PartitionProduceData(PARTITION.partition, len(batch))])]
        call = Call(ProduceRequest(acks, 30_000, data), batch)
        broker = self._brokers[leader]
        broker.data.produce.handle(cast(RequestInHand, call))
        broker.data.burst.end()
        return call

    def read(self, name: str) -> Call:
        """What a consumer is answered that reads everything: the records are regions of files."""
        wanted = FetchPartition(PARTITION.partition, 0, 2**20)
        call = Call(FetchRequest(0, 1, 2**20, [FetchTopic(PARTITION.topic, [wanted])]))
        data = self._brokers[name].data
        data.fetch.handle(cast(RequestInHand, call))
        data.burst.end()
        return call

    def ask(self, follower: str) -> Question:
        """The follower's next fetch, from its log as it is now. It must follow somebody."""
        partition = self.partition(follower)
        for fetcher in self._brokers[follower].data.followers._fetchers.values():
            if partition in fetcher.partitions:
                request, asked = fetcher._request(FetchPlan([partition]), trio.current_time())
                return Question(follower, fetcher, msgspec.structs.replace(request, max_wait_ms=0), asked)
        raise AssertionError(f"{follower} follows nobody")

    def answer(self, leader: str, question: Question) -> Answer:
        """What this broker answers now."""
        call = Call(question.request)
        data = self._brokers[leader].data
        data.fetch.handle(cast(RequestInHand, call))
        data.burst.end()
        assert isinstance(call.response, FetchResponse)
        records = b"".join(region.file.pread(region.length, region.position) for region in call.regions)
        return Answer(call.response, records)

    def take(self, question: Question, answer: Answer) -> None:
        """The answer arrives at the follower."""
        question.fetcher._process(answer.response, memoryview(answer.records), question.asked)

    def fetch(self, follower: str) -> Answer:
        """One round trip with whom it follows."""
        question = self.ask(follower)
        leader = self.names[self.partition(follower).leader_id - 1]
        answer = self.answer(leader, question)
        self.take(question, answer)
        return answer

    def catch_up(self, followers: str, *, rounds: int = 20) -> None:
        """Fetch in turns until nobody's log or high watermark moves any more."""
        for _ in range(rounds):
            before = [(self.leo(name), self.hw(name)) for name in self.names]
            for name in followers:
                self.fetch(name)
            if before == [(self.leo(name), self.hw(name)) for name in self.names]:
                return
        raise AssertionError(f"{followers} do not come to rest")


def _drop(_: Any, __: str, ___: Any) -> Any:
    raise structlog.DropEvent
