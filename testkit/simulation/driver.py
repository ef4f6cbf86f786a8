"""One run: start, load, faults, healing, judgement.

```
options, script ──> World ──> workloads + faults (──> limping) ──> come to rest ──> judgement ──> Report
   (a seed)                     history, disks, log lines
```
"""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import trio

from strandline.testkit.clock import SimulationClock
from strandline.testkit.cluster import CLIENT, MemoryCluster
from strandline.testkit.environment import VirtualWallClock
from strandline.testkit.node_tasks import NodeTasks
from strandline.testkit.simulation.counters import count_events, counting
from strandline.testkit.simulation.faults.striking import Strikes
from strandline.testkit.simulation.faults.table import KINDS, draw_script
from strandline.testkit.simulation.fences import Fences
from strandline.testkit.simulation.findings import ended_by
from strandline.testkit.simulation.god_view import GodView
from strandline.testkit.simulation.history import NEVER_S, History
from strandline.testkit.simulation.judgement import judge
from strandline.testkit.simulation.leftovers import leftovers
from strandline.testkit.simulation.limping import limp
from strandline.testkit.simulation.losses import Losses
from strandline.testkit.simulation.options import Options, draw_options, draw_weights
from strandline.testkit.simulation.rest import come_to_rest
from strandline.testkit.simulation.scheduler import run_seeded
from strandline.testkit.simulation.script import Fault, Struck
from strandline.testkit.simulation.state_rules import StateRules
from strandline.testkit.simulation.watermarks import Watermarks
from strandline.testkit.simulation.workloads.changing_topics import create_topic
from strandline.testkit.simulation.workloads.table import ALWAYS, SOMETIMES
from strandline.testkit.simulation.world import World

ADMIN_TIMEOUT_MS = 2_000
ENDED_WITHIN_S = 300.0
"""After the time with faults. Who cannot be started is tried for long."""


@dataclass(frozen=True)
class Report:
    """findings: what does not hold (`findings`). digest: of all that happened; the same run has the same. sometimes:
    how often something rare was reached. virtual_s: how long it took. lines: what brokers logged. struck: faults that
    were really done. history: what clients did and were told."""

    options: Options
    script: tuple[Fault, ...]
    findings: list[str]
    digest: str
    virtual_s: float
    lines: list[str]
    sometimes: Counter[str]
    struck: list[Struck]
    history: History


def options_of(seed: int, *, brokers: int = 3, length_s: float = 120.0, kinds: Iterable[str] | None = None) -> Options:
    """What that seed draws. length_s: of the time with faults. kinds: of faults, all of which there may be; None: those
    that the seed draws."""
    weights = draw_weights(seed, KINDS) if kinds is None else dict.fromkeys(kinds, 1)
    return draw_options(seed, weights, SOMETIMES, brokers=brokers, length_s=length_s)


def simulate_seed(
    seed: int, *, brokers: int = 3, length_s: float = 120.0, kinds: Iterable[str] | None = None
) -> Report:
    """A run of `options_of` the same."""
    return simulate(options_of(seed, brokers=brokers, length_s=length_s, kinds=kinds))


def simulate(
    options: Options, script: tuple[Fault, ...] | None = None, on_time: Callable[[float], None] | None = None
) -> Report:
    """script: in place of what the seed draws. on_time: is told the virtual time, often. Whatever ends the run before
    its time is a finding, too."""
    script = draw_script(options) if script is None else script
    run = _Run(options, script, on_time)
    try:
        run_seeded(options.seed, run.main)
    except Exception as failure:
        run.findings += [*run.world.violations, ended_by(failure)]
    world, lines = run.world, run.world.cluster.history
    return Report(
        *(options, script, run.findings, run.digest(), run.ended_s),
        *(lines, world.sometimes, world.struck, world.history),
    )


class _Run:
    def __init__(self, options: Options, script: tuple[Fault, ...], on_time: Callable[[float], None] | None) -> None:
        cluster = _cluster(options)
        self.world = World(options, cluster, cluster.admin(request_timeout_ms=ADMIN_TIMEOUT_MS))
        self.findings: list[str] = []
        self.ended_s = 0.0
        self._script = script
        self._on_time = on_time

    async def main(self, clock: SimulationClock) -> None:
        world = self.world
        god_view = GodView(world)
        clock.on_time = self._on_time
        losses = Losses(world, god_view)
        world.cluster.zookeeper.tree.on_apply = StateRules(world, god_view, losses).applied
        try:
            with (
                world.until_violation,
                god_view.watching(),
                Watermarks(world, god_view).watching(),
                Fences(world).watching(),
                counting(world.sometimes),
            ):
                await self._live(losses, clock)
        finally:
            self.ended_s = clock.now_s
            count_events(world.cluster.history, world.sometimes)
        if world.violations:
            self.findings[:0] = world.violations

    async def _live(self, losses: Losses, clock: SimulationClock) -> None:
        world = self.world
        async with world.cluster.running(tells=False):
            async with world.admin, trio.open_nursery() as watchers:
                for plan in world.options.topics:
                    await create_topic(world, plan)
                strikes = Strikes(world, losses, KINDS)
                watchers.start_soon(losses.watch_leaders)
                watchers.start_soon(strikes.keep_up)
                ends_s = clock.now_s + world.options.length_s
                undone_s = max((clock.now_s + fault.at_s + fault.seconds for fault in self._script), default=ends_s)
                with trio.move_on_at(max(ends_s, undone_s) + ENDED_WITHIN_S) as bound:
                    await self._load_and_strike(strikes, ends_s)
                if bound.cancelled_caught:
                    return self._tell_who_does_not_end()
                self.findings += await limp(world)
                self.findings += await come_to_rest(world)
                self.findings += judge(world, losses)
                watchers.cancel_scope.cancel()
            self.findings += await leftovers(world.cluster)

    async def _load_and_strike(self, strikes: Strikes, ends_s: float) -> None:
        async with trio.open_nursery() as nursery:
            for workload in (*ALWAYS.values(), *(SOMETIMES[name] for name in self.world.options.workloads)):
                nursery.start_soon(workload, self.world)
            await strikes.run(self._script)
            await trio.sleep_until(ends_s)
            self.world.is_over = True

    def _tell_who_does_not_end(self) -> None:
        undone = ", ".join(str(struck.fault).strip() for struck in self.world.struck if struck.to_s == NEVER_S)
        what = f"undone: {undone}" if undone else "clients do not end"
        self.world.violated(f"not-done: {ENDED_WITHIN_S:g} s after the time with faults: {what}")

    def digest(self) -> str:
        told = hashlib.sha256()
        for line in self.world.cluster.history:
            told.update(line.encode())
        for each in self.world.history.all():
            told.update(repr(each).encode())
        return told.hexdigest()[:16]


def _cluster(options: Options) -> MemoryCluster:
    cluster = MemoryCluster(
        options.brokers,
        seed=options.seed,
        network_latency_s=options.latency_s,
        zookeeper_latency_s=options.zookeeper_latency_s,
        config=dict(options.config),
    )
    places = (CLIENT, *(node.name for node in cluster.nodes.values()))
    for source, destination in itertools.permutations(places, 2):
        cluster.network.link(source, destination).jitter_s = options.jitter_s
    for node, rate, skew_ms in zip(cluster.nodes.values(), options.clock_rates, options.wall_skews_ms, strict=True):
        node.tasks = NodeTasks(node.name, offset_s=1000.0 * node.broker_id, rate=rate)
        node.wall_clock = VirtualWallClock(skew_ms=skew_ms, rate=rate)
        node.disk_delay_s = options.disk_delay_s
        node.beat_s = options.beat_s
    return cluster
