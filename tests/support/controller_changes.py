"""Changes of a cluster that a controller carries out, each as one `Change`: what stands before, what is asked for, and
what has to be there in the end. `play` does one with the controller stopped on the way.

A change that takes a controller is one more `Change` in the scenario test's table; it asks again until it was heard, as
operators and their tools do, since the controller that heard it may be gone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import trio

from strandline.client import TrioAdmin
from strandline.client.errors import ClientError
from strandline.protocol.types import TopicPartition
from strandline.testkit.cluster import MemoryCluster
from strandline.testkit.inspection import Ledger, read_all
from support.cluster_audit import Layout, partitions_of, problems
from support.controller_stops import Step, Steps, Stop, Way

T0 = TopicPartition("kept", 0)
"""Written to all the time. Its leader's broker is the first controller's."""
KEPT: Layout = {T0.topic: [[1, 2, 3]]}
PATIENCE_S = 120.0
LOOK_INTERVAL_S = 0.1
BACK_SOON_S = 2.0
BACK_LATE_S = 15.0
"""After a session ended, and its consequences are over."""
CONFIG = {
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "4000",
    "log.segment.delete.delay.ms": "500",
    "controlled.shutdown.retry.backoff.ms": "1000",
}


@dataclass
class Stage:
    """A cluster while a change is made."""

    cluster: MemoryCluster
    admin: TrioAdmin

    async def insist(self, ask: Callable[[TrioAdmin], Awaitable[bool]]) -> None:
        """Ask until it says that it was heard."""
        with trio.move_on_after(PATIENCE_S):
            while True:
                try:
                    if await ask(self.admin):
                        return
                except ClientError:
                    pass
                await trio.sleep(LOOK_INTERVAL_S)
        raise AssertionError(f"nobody has heard what was asked for within {PATIENCE_S} s")

    async def until(self, condition: Callable[[], bool]) -> None:
        with trio.move_on_after(PATIENCE_S):
            while not condition():
                await trio.sleep(LOOK_INTERVAL_S)
            return
        raise AssertionError(f"what was waited for has not come within {PATIENCE_S} s")


@dataclass(frozen=True)
class Change:
    """`before`: the topics at the beginning, `after`: in the end, beside the one that is written to. `prepare`: what
    else stands before, once these are there; `change`: asks until it was heard. `leaders`: who leads in the end, where
    that was asked for. `brokers`: how many there are. `properties`: of theirs, beside the usual ones."""

    name: str
    change: Callable[[Stage], Awaitable[None]]
    before: Layout = field(default_factory=dict)
    after: Layout = field(default_factory=dict)
    prepare: Callable[[Stage], Awaitable[None]] | None = None
    leaders: Mapping[TopicPartition, int] = field(default_factory=dict)
    brokers: int = 3
    properties: Mapping[str, str] = field(default_factory=dict)


async def play(change: Change, stop: Stop | None = None) -> list[Step]:
    """Make the change, ending the controller where `stop` says, and audit what comes of it. Returns the steps that all
    controllers took until everything had come to rest. AssertionError."""
    config = {**CONFIG, **change.properties}
    async with MemoryCluster(change.brokers, config=config).running(start=False) as cluster:
        steps = Steps(cluster, stop)
        with steps.watched():
            for broker_id in cluster.nodes:
                await cluster.start_broker(broker_id)
            async with cluster.admin() as admin, cluster.producer(linger_ms=0, request_timeout_ms=2_000) as producer:
                stage, ledger = Stage(cluster, admin), Ledger()
                await _set_the_stage(stage, change)
                async with trio.open_nursery() as nursery:
                    load = trio.CancelScope()

                    async def write() -> None:
                        with load:
                            number = 0
                            while True:
                                await ledger.produce(producer, T0, [b"%d" % number])
                                number += 1
                                await trio.sleep(0.2)

                    nursery.start_soon(write)
                    is_back = trio.Event()
                    nursery.start_soon(_bring_back, cluster, steps, stop, is_back)
                    await trio.sleep(0.5)
                    steps.count()
                    await change.change(stage)
                    assert stop is None or steps.stopped.is_set() or await _stops_later(steps), "it never came so far"
                    if stop is not None:
                        await is_back.wait()  # what follows from a stop may begin after all that was asked for is done
                    await _come_to_rest(stage, change)
                    steps.count(False)
                    nursery.cancel_scope.cancel()
            await _audit_records(cluster, ledger)
        return steps.taken


async def _stops_later(steps: Steps) -> bool:
    with trio.move_on_after(10):
        await steps.stopped.wait()
    return steps.stopped.is_set()


async def _set_the_stage(stage: Stage, change: Change) -> None:
    for name, replicas in {**KEPT, **change.before}.items():
        await stage.admin.create_topic(name, assignments=dict(enumerate(map(list, replicas))))
    layout = {**KEPT, **change.before}
    await stage.until(lambda: not problems(stage.cluster, layout))
    assert stage.cluster.controller_id == 1
    if change.prepare is not None:
        await change.prepare(stage)


async def _bring_back(cluster: MemoryCluster, steps: Steps, stop: Stop | None, is_back: trio.Event) -> None:
    await steps.stopped.wait()
    if stop is not None and stop.way not in (Way.EXPIRE, Way.CUT):
        await trio.sleep(BACK_SOON_S if stop.way in (Way.CRASH, Way.REFUSE) else BACK_LATE_S)
        if stop.way is Way.REFUSE:
            cluster.take_connections(steps.who)
        else:
            await cluster.start_broker(steps.who)
    is_back.set()


async def _come_to_rest(stage: Stage, change: Change) -> None:
    layout = {**KEPT, **change.after}

    def left() -> list[str]:
        found = problems(stage.cluster, layout)
        if not found:
            leads = {tp: stage.cluster.leader(tp) for tp in change.leaders}
            found = [] if leads == change.leaders else [f"leaders are {leads}"]
        return found

    with trio.move_on_after(PATIENCE_S):
        while left():
            await trio.sleep(LOOK_INTERVAL_S)
    assert not left(), "\n".join(left())
    await trio.sleep(2)
    assert not left(), "\n".join(["it did not last", *left()])
    for tp in partitions_of(layout):
        stage.cluster.assert_replicas_equal(tp)


async def _audit_records(cluster: MemoryCluster, ledger: Ledger) -> None:
    assert ledger.acked[T0], "nothing was acknowledged"
    async with cluster.consumer() as consumer:
        ledger.assert_kept(T0, await read_all(consumer, T0))
    cluster.assert_replicas_equal(T0)
