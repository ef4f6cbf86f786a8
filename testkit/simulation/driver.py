"""One run: start, load, faults, healing, judgement.

```
options, script ──> World ──> workloads + faults ──> come to rest ──> judgement ──> Report
   (a seed)                     history, disks, log lines
```
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from dataclasses import dataclass, field

import trio

from strandline.client.errors import ClientError
from strandline.testkit.clock import SimulationClock
from strandline.testkit.cluster import MemoryCluster
from strandline.testkit.environment import VirtualWallClock
from strandline.testkit.node_tasks import NodeTasks
from strandline.testkit.simulation.faults import KINDS, Faults
from strandline.testkit.simulation.judgement import come_to_rest, judge
from strandline.testkit.simulation.losses import Losses
from strandline.testkit.simulation.options import Options, TopicPlan, draw_options, draw_script
from strandline.testkit.simulation.scheduler import run_seeded
from strandline.testkit.simulation.script import Fault
from strandline.testkit.simulation.workloads.consuming import consume
from strandline.testkit.simulation.workloads.producing import produce
from strandline.testkit.simulation.world import TopicLife, World


@dataclass
class Report:
    """findings: what does not hold. digest: of all that happened. virtual_s, real_s: how long it took."""

    options: Options
    script: tuple[Fault, ...]
    findings: list[str]
    digest: str
    virtual_s: float
    real_s: float
    lines: list[str]
    sometimes: Counter[str] = field(default_factory=Counter)


def simulate(options: Options, script: tuple[Fault, ...] | None = None) -> Report:
    """script: in place of what the seed draws."""
    script = draw_script(options) if script is None else script
    began = time.process_time()
    world, findings = run_seeded(options.seed, lambda clock: _run(options, script, clock))
    virtual_s = world.ended_s
    return Report(
        options,
        script,
        findings,
        _digest(world),
        virtual_s,
        time.process_time() - began,
        world.cluster.history,
        world.sometimes,
    )


def simulate_seed(seed: int, *, brokers: int = 3, length_s: float = 120.0) -> Report:
    return simulate(draw_options(seed, KINDS, brokers=brokers, length_s=length_s))


def _digest(world: World) -> str:
    told = hashlib.sha256()
    for line in world.cluster.history:
        told.update(line.encode())
    for each in (*world.history.writes, *world.history.polls):
        told.update(repr(each).encode())
    return told.hexdigest()[:16]


async def _run(options: Options, script: tuple[Fault, ...], clock: SimulationClock) -> tuple[World, list[str]]:
    cluster = MemoryCluster(
        options.brokers, seed=options.seed, network_latency_s=options.latency_s, config=dict(options.config)
    )
    for node, rate, skew_ms in zip(cluster.nodes.values(), options.clock_rates, options.wall_skews_ms, strict=True):
        node.tasks = NodeTasks(node.name, offset_s=1000.0 * node.broker_id, rate=rate)
        node.wall_clock = VirtualWallClock(skew_ms=skew_ms, rate=rate)
        node.disk_delay_s = options.disk_delay_s
    world = World(options, cluster)
    async with cluster.running(), cluster.admin(request_timeout_ms=2_000) as admin:
        for plan in options.topics:
            world.topics[plan.name] = TopicLife(plan, partitions=plan.partitions)
            await _create(world, admin, plan)
        losses = Losses(world)
        async with trio.open_nursery() as watchers:
            watchers.start_soon(losses.watch_leaders)
            async with trio.open_nursery() as load:
                for plan in options.topics:
                    load.start_soon(lambda name=plan.name: produce(world, f"producer-{name}", name, idempotent=True))
                    load.start_soon(consume, world, f"consumer-{plan.name}", plan.name)
                ends_s = clock.now_s + options.length_s
                await Faults(world, losses).run(script)
                await trio.sleep_until(max(ends_s, clock.now_s + 1))
                world.is_over = True
            findings = await come_to_rest(world)
            watchers.cancel_scope.cancel()
        findings += judge(world, losses)
        world.ended_s = clock.now_s
    return world, findings


async def _create(world: World, admin, plan: TopicPlan) -> None:
    configs = {"min.insync.replicas": str(plan.min_isr), **plan.configs}
    while not world.exists(plan.name):
        try:
            await admin.create_topic(plan.name, plan.partitions, plan.replication, configs=configs, timeout_ms=3_000)
        except ClientError:
            await trio.sleep(0.2)


if __name__ == "__main__":
    import sys

    for seed in range(int(sys.argv[1]), int(sys.argv[2])):
        r = simulate_seed(seed, length_s=float(sys.argv[3]) if len(sys.argv) > 3 else 120.0)
        print(seed, r.digest, f"{r.virtual_s:.1f} s, {r.virtual_s / r.real_s:.1f}x", dict(r.sometimes), r.findings[:5])
