"""What a cluster logs tells what happened to it: kills, stops, topics made anew, a whole cluster that dies."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import trio
from trio.testing import MockClock

from strandline.cli.watch_replay import KINDS, replayed
from strandline.protocol.history.gaps import Gap, Gaps
from strandline.protocol.history.lines import OF_PARTITIONS, Event, Kind, Line
from strandline.protocol.history.lives import Lives, Runs, lives
from strandline.protocol.history.merging import Told
from strandline.protocol.history.timeline import PartitionHistory, histories
from strandline.protocol.types import NO_BROKER
from strandline.testkit.cluster import MemoryCluster
from support.change_lines import read_history
from support.scenario import T0, check_at_the_end, cluster_with_topic, numbered

TOLERANCE_MS = 50


def told_of(cluster: MemoryCluster) -> tuple[Lives, list[PartitionHistory]]:
    """Lives, and the histories of t-0, read from what all brokers logged."""
    lines = read_history(cluster.history)
    runs = {broker_id: Runs() for broker_id in cluster.nodes}
    events: list[Event] = []
    for line in lines:
        runs[line.broker_id].add(line)
        events += line.events
    found = lives(
        [event for event in events if event.kind not in OF_PARTITIONS],
        [run for each in runs.values() for run in each.end()],
    )
    own = [event for event in events if event.kind in OF_PARTITIONS and (event.topic, event.partition) == T0]
    return found, histories(own, found)


def gaps_in(lines: Iterable[Line]) -> list[Gap]:
    gaps = Gaps()
    for number, line in enumerate(sorted(lines, key=lambda each: each.time_ms), 1):
        gaps.add(Told(0, True, "log", number, line), line.events)
    return gaps.found()


def now_ms() -> float:
    return trio.current_time() * 1000


def is_near(time_ms: int | None, truth_ms: float) -> bool:
    return time_ms is not None and abs(time_ms - truth_ms) <= TOLERANCE_MS


async def test_logs_tell_who_led_until_when_and_who_was_controller(autojump_clock: MockClock) -> None:
    async with cluster_with_topic([1, 2, 3]) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("before", 5))
        killed_ms = now_ms()
        cluster.crash(1)
        await ledger.produce(producer, T0, numbered("without", 5))
        led_again_ms = now_ms()
        await cluster.start_broker(1)
        back_ms = now_ms()
        await cluster.until(lambda: len(cluster.isr(T0)) == 3, "it joins")
        await cluster.stop(cluster.leader(T0))
        await cluster.rest(5)
        found, (history,) = told_of(cluster)
        last = history.intervals[-1]
        assert (last.leader, sorted(last.isr)) == (cluster.leader(T0), sorted(cluster.isr(T0)))
        assert history.unknown_changes == 0 and last.to_ms is None and set(last.replicas) == {1, 2, 3}
        (outage,) = history.outages
        assert is_near(outage.from_ms, killed_ms) and outage.to_ms is not None
        assert 0 < outage.to_ms - outage.from_ms <= led_again_ms - killed_ms + TOLERANCE_MS
        assert (outage.leader_before, outage.leader_after) == (1, history.services[1].leader)
        (downtime,) = found.downtimes[1]
        assert is_near(downtime.from_ms, killed_ms) and is_near(downtime.to_ms, back_ms) and not downtime.in_order
        assert found.downtimes[history.services[1].leader][-1].in_order
        assert found.reigns[0].broker_id == 1 and is_near(found.reigns[0].to_ms, killed_ms)
        assert found.reigns[-1].broker_id == cluster.controller_id and found.reigns[-1].to_ms is None


async def test_a_topic_made_anew_has_a_history_of_its_own(autojump_clock: MockClock) -> None:
    async with cluster_with_topic([1, 2, 3]) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("old", 2))
        async with cluster.admin() as admin:
            deleted_ms = now_ms()
            await admin.delete_topic(T0.topic)
            await cluster.rest(1)
            await admin.create_topic(T0.topic, assignments={0: [2, 3]})
        await cluster.until(lambda: cluster.leader(T0) == 2, "it is led")
        _, (old, new) = told_of(cluster)
        assert is_near(old.intervals[-1].to_ms, deleted_ms) and not old.outages
        assert (new.intervals[0].leader, new.intervals[0].leader_epoch, new.intervals[0].replicas) == (2, 0, (2, 3))
        assert old.topic_id != new.topic_id and not new.outages


async def test_of_a_cluster_that_dies_as_a_whole_the_end_is_known_to_a_minute(autojump_clock: MockClock) -> None:
    async with cluster_with_topic([1, 2, 3]) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("before", 5))
        await cluster.rest(600)
        killed_ms = now_ms()
        for broker_id in cluster.nodes:
            cluster.crash(broker_id)
        await cluster.rest(300)
        for broker_id in cluster.nodes:
            await cluster.start_broker(broker_id)
        await ledger.produce(producer, T0, numbered("after", 5))
        led_again_ms = now_ms()
        _, (history,) = told_of(cluster)
        assert history.outages and cluster.leader(T0) != NO_BROKER
        assert killed_ms - 60_000 <= history.outages[0].from_ms <= killed_ms
        last = history.outages[-1]
        assert last.to_ms is not None and last.to_ms <= led_again_ms
        await check_at_the_end(cluster, ledger)


async def test_whole_logs_have_no_gaps_and_lines_that_are_taken_out_leave_one(autojump_clock: MockClock) -> None:
    async with cluster_with_topic([1, 2, 3]) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("before", 5))
        cluster.crash(cluster.controller_id)
        await ledger.produce(producer, T0, numbered("without", 5))
        await cluster.rest(10)
        await cluster.start_broker(1)
        await cluster.until(lambda: len(cluster.isr(T0)) == 3, "it joins")
        await cluster.stop(cluster.leader(T0))
        stopped_ms = now_ms()
        await cluster.rest(300)
        lines = read_history(cluster.history)
        assert gaps_in(lines) == []
        shrunk = next(
            event
            for line in lines
            for event in line.events
            if (event.topic, event.partition) == T0
            and event.kind in (Kind.WRITTEN, Kind.CHANGED)
            and len(event.isr) < 3
        )

        def tells_of_it(line: Line) -> bool:
            return any(
                (each.topic, each.partition, each.zk_version) == (*T0, shrunk.zk_version) for each in line.events
            )

        [gap] = gaps_in(line for line in lines if not tells_of_it(line))
        assert (gap.topic, gap.partition, gap.first, gap.last) == (*T0, shrunk.zk_version, shrunk.zk_version)
        assert gap.before.time_ms <= shrunk.time_ms <= gap.behind.time_ms
        living = cluster.controller_id
        quiet = [each for each in lines if each.broker_id != living or each.time_ms < stopped_ms + 10_000]
        quiet.append(lines[-1]._replace(broker_id=living))
        assert living in {each.broker_id for each in gaps_in(quiet)}
        ended = [each for each in lines if each.broker_id != living or each.time_ms < stopped_ms + 10_000]
        [at_the_end] = gaps_in(ended)
        assert at_the_end.broker_id == living and at_the_end.behind.broker_id != living


async def test_a_controller_that_is_killed_and_stays_away_leaves_no_gap(autojump_clock: MockClock) -> None:
    async with cluster_with_topic([1, 2, 3]) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("before", 5))
        killed = cluster.controller_id
        cluster.crash(killed)
        await ledger.produce(producer, T0, numbered("without", 5))
        await cluster.rest(300)
        lines = read_history(cluster.history)
        assert gaps_in(lines) == []
        elections = [line for line in lines if Kind.ELECTED in {event.kind for event in line.events}]
        assert elections[0].broker_id == killed
        assert gaps_in(line for line in lines if line is not elections[0]) == []


@pytest.mark.parametrize("replicas", [[1], [1, 2], [2, 1], [1, 2, 3], [3]], ids=str)
@pytest.mark.parametrize("how", ["crash", "vanish"])
async def test_who_dies_together_with_the_controller_is_away_and_leaves_no_gap(
    autojump_clock: MockClock, how: str, replicas: list[int]
) -> None:
    """The controller after them knew neither alive, so it cannot miss them: it says who lives when it takes over."""
    async with cluster_with_topic(replicas, brokers=3) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, numbered("before", 5))
        controller = cluster.controller_id
        dead = {controller, next(broker_id for broker_id in (2, 1) if broker_id != controller)}
        for broker_id in dead:
            getattr(cluster, how)(broker_id)
        await cluster.rest(300)
        lines = sorted(read_history(cluster.history), key=lambda line: line.time_ms)
        assert gaps_in(lines) == []
        events = [event for line in lines for event in line.events if event.kind in KINDS]
        *_, last = replayed(events, T0.topic, None, None)
        assert last.partitions is not None and set(last.partitions[T0.partition].away) == dead.intersection(replicas)
