"""How a run of `make soak-history` ends: all comes to rest, everything is read once more, brokers are stopped, their
files read, and the history is judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial

import trio

from soak.history_load import HistoryLoad
from soak.history_site import HistoryCluster
from soak.soak_promises import Verdict, judge
from soak.soak_run import off_loop, stopped
from strandline.client import TrioAdmin
from strandline.client.errors import ClientError
from strandline.client.metadata import PartitionView
from strandline.protocol.records import decode_records
from strandline.protocol.types import TopicPartition
from strandline.testkit.simulation.anomalies import Anomaly, Excuses, FinalLog, anomalies
from strandline.testkit.simulation.history import Stream
from strandline.testkit.verification import PromiseBroken, read_everything
from support.lasting import same_bytes

RESTS_WITHIN_S = 180
READ_WITHIN_S = 600
"""Each topic."""
LOOK_INTERVAL_S = 0.5
SHOWN = 5
"""Of each anomaly."""


async def until_rest(cluster: HistoryCluster) -> str:
    """Until every partition of every topic is led, and all of its replicas are in sync, nothing is moved, and all
    brokers are there. PromiseBroken."""
    began_s = trio.current_time()
    lacking = ["nobody was asked"]
    with trio.move_on_after(RESTS_WITHIN_S):
        async with TrioAdmin(cluster.proxies.bootstrap_servers, default_api_timeout_ms=10_000) as admin:
            while lacking := await _lacking(cluster, admin):
                await trio.sleep(LOOK_INTERVAL_S)
        return f"after {trio.current_time() - began_s:.1f} s"
    raise PromiseBroken(f"no rest {RESTS_WITHIN_S} s after all had healed: {lacking[:SHOWN]}")


async def _lacking(cluster: HistoryCluster, admin: TrioAdmin) -> list[str]:
    try:
        views = await _views(admin)
        found = [f"{tp} is moved" for tp in await admin.list_partition_reassignments()]
        there = set((await admin.describe_cluster()).brokers)
    except ClientError as error:
        return [f"{type(error).__name__}: {error}"]
    found += [f"broker {each} is not there" for each in cluster.broker_ids if each not in there]
    for tp, view in views.items():
        if view.leader < 0 or set(view.in_sync_replicas) != set(view.replicas):
            found.append(f"{tp}: led by {view.leader}, in sync {view.in_sync_replicas} of {view.replicas}")
    return found


async def _views(admin: TrioAdmin) -> dict[TopicPartition, PartitionView]:
    topics = await admin.describe_topics(await admin.list_topics())
    return {
        TopicPartition(name, number): view
        for name, topic in topics.items()
        for number, view in topic.partitions.items()
    }


async def prove(
    cluster: HistoryCluster, load: HistoryLoad, topics: Mapping[str, int], verdicts: list[Verdict]
) -> list[Anomaly]:
    """topics: partitions by name. Brokers are stopped when it returns; what the history has that it must not have, as
    far as everything could be read."""
    servers = cluster.proxies.bootstrap_servers
    replicas: dict[TopicPartition, Sequence[int]] = {}
    read: dict[str, dict[int, list[tuple[int, bytes]]]] = {}

    async def read_all() -> str:
        async with TrioAdmin(servers) as admin:
            replicas.update({tp: view.replicas for tp, view in (await _views(admin)).items() if tp.topic in topics})
        for topic, count in topics.items():
            with trio.fail_after(READ_WITHIN_S):
                read[topic] = await read_everything(servers, topic, count)
        return f"{sum(len(records) for found in read.values() for records in found.values()):,} records"

    await judge(verdicts, "everything can be read in the end", read_all)
    await judge(verdicts, "no broker fails by itself", partial(stopped, cluster))
    if len(read) < len(topics):
        return []

    def equal() -> str:
        shared_bytes = 0
        for tp, brokers in replicas.items():
            name = f"{tp.topic}-{tp.partition}"
            _, shared = same_bytes(name, {each: cluster.log_of(each, name) for each in brokers})
            shared_bytes += shared
        return f"{shared_bytes / 1e6:.1f} MB on each of three"

    await judge(verdicts, "replicas are identical", partial(off_loop, equal))
    weak = {write.value for write in load.history.writes if write.acks != -1}
    found: list[Anomaly] = []

    async def well() -> str:
        logs: dict[Stream, FinalLog] = {}
        for tp, brokers in replicas.items():
            content = memoryview(cluster.log_of(brokers[0], f"{tp.topic}-{tp.partition}"))
            records = {record.offset: bytes(record.value or b"") for record in decode_records(content)}
            logs[Stream(tp, 1)] = FinalLog(0, records, dict(read[tp.topic][tp.partition]))
        found.extend(await off_loop(anomalies, load.history, logs, Excuses(weak=weak)))
        if found:
            raise PromiseBroken(f"{dict(Counter(each.name for each in found))}")
        history = load.history
        return (
            f"{len(history.writes):,} writes, {sum(len(each.records) for each in history.polls):,} records read, "
            f"{len(history.commits):,} commits, {len(history.ownerships):,} ownerships"
        )

    await judge(verdicts, "the history has no anomaly", well)
    return found
