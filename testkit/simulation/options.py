"""What a seed decides before a run begins: the cluster, its load, and which faults there may be (swarm testing).

Each seed draws the chances themselves, zero among them: one run has nothing but cuts, one nothing at all. What is drawn
is printed at the head of a run, so that a run is understood by its first lines.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class TopicPlan(NamedTuple):
    """acks: of who writes to it. It begins with so many partitions, and may grow."""

    name: str
    partitions: int
    replication: int
    min_isr: int
    acks: int
    configs: Mapping[str, str]

    @property
    def is_compacted(self) -> bool:
        return self.configs.get("cleanup.policy") == "compact"

    @property
    def has_retention(self) -> bool:
        """Records may leave it by themselves."""
        return "retention.bytes" in self.configs or "retention.ms" in self.configs

    def __str__(self) -> str:
        configs = "".join(f", {key}={value}" for key, value in self.configs.items())
        replicas = f"{self.partitions} partitions of {self.replication} replicas, min.insync.replicas {self.min_isr}"
        return f"{self.name}: {replicas}, acks {self.acks}{configs}"


@dataclass(frozen=True)
class Options:
    seed: int
    brokers: int
    length_s: float
    """Of the time with faults; healing and coming to rest follow."""
    topics: tuple[TopicPlan, ...]
    config: Mapping[str, str]
    """Keys of `server.properties` for every broker."""
    weights: Mapping[str, int]
    """Kind of fault → how often, among the others."""
    workloads: tuple[str, ...]
    """Beside those that every run has."""
    faults_per_minute: float
    longest_fault_s: float
    write_pause_s: float
    """Between two records of one producer."""
    latency_s: float
    jitter_s: float
    zookeeper_latency_s: float
    """Of a round trip: how long a decision is on its way while others act."""
    disk_delay_s: float
    beat_s: float
    """What brokers look at from time to time they look at so often, or less."""
    clock_rates: tuple[float, ...]
    """How fast the monotonic clock of each broker goes."""
    wall_skews_ms: tuple[int, ...] = field(default=())
    lame_link: str = ""
    """`1>3`: stays cut behind the time with faults, for a while (`limping`); empty: none does."""

    def lines(self) -> list[str]:
        faults = ", ".join(f"{kind} ×{weight}" for kind, weight in self.weights.items() if weight)
        rates = ", ".join(f"{(rate - 1) * 1e6:+.0f} ppm" for rate in self.clock_rates)
        skews = ", ".join(f"{skew_ms:+} ms" for skew_ms in self.wall_skews_ms)
        return [
            f"seed {self.seed}: {self.brokers} brokers, {self.length_s:g} s",
            *(f"topic {topic}" for topic in self.topics),
            "config " + ", ".join(f"{key}={value}" for key, value in self.config.items()),
            f"{self.faults_per_minute:g} faults a minute, {self.longest_fault_s:g} s at most: {faults or 'none'}",
            f"workloads: {', '.join(self.workloads) or 'producers and consumers only'}",
            f"a record every {self.write_pause_s:g} s; latency {self.latency_s * 1e3:g} ms + {self.jitter_s * 1e3:g}, "
            f"to ZooKeeper {self.zookeeper_latency_s * 1e3:g} ms; disk {self.disk_delay_s * 1e3:g} ms, "
            f"beats {self.beat_s * 1e3:g} ms; clocks {rates}; wall clocks {skews}",
            *([f"in the end {self.lame_link} stays cut for a while"] if self.lame_link else []),
        ]


def draw_weights(seed: int, kinds: Iterable[str]) -> dict[str, int]:
    """Kind of fault → its weight, of many 0: where few kinds have one, each meets itself and the others more often."""
    share = random.Random(f"{seed}/share of kinds").choice((0.12, 0.3, 0.6))
    chances = {kind: random.Random(f"{seed}/weight of {kind}") for kind in kinds}
    return {kind: each.choice((1, 1, 3)) if each.random() < share else 0 for kind, each in chances.items()}


def draw_options(
    seed: int, weights: Mapping[str, int], workloads: Iterable[str], *, brokers: int = 3, length_s: float = 120.0
) -> Options:
    """weights: of kinds of faults; they change nothing else. workloads: of which each seed has some."""
    chance = random.Random(f"{seed}/options")
    faults_per_minute = chance.choice((0.0, 6.0, 15.0, 30.0))
    small = chance.random() < 0.7
    lag_max_ms = chance.choice((1_500, 2_000, 4_000))
    config = {
        "replica.lag.time.max.ms": str(lag_max_ms),
        "replica.fetch.wait.max.ms": str(chance.choice((500, lag_max_ms * 2 // 3))),
        "unclean.recovery.strategy": chance.choice(("balanced", "balanced", "none")),
        "log.segment.bytes": str(chance.choice((1_000, 4_000, 20_000))) if small else "1000000",
        "log.index.interval.bytes": str(chance.choice((1, 500))) if small else "4096",
        "replica.high.watermark.checkpoint.interval.ms": str(chance.choice((1_000, 5_000))),
        "log.flush.offset.checkpoint.interval.ms": str(chance.choice((1_000, 60_000))),
        "log.retention.check.interval.ms": str(chance.choice((1_000, 10_000))),
        "log.cleaner.backoff.ms": str(chance.choice((1_000, 3_000))),
        "log.segment.delete.delay.ms": str(chance.choice((100, 5_000))),
        "auto.leader.rebalance.enable": chance.choice(("true", "false")),
        "leader.imbalance.check.interval.seconds": "5",
        "leader.imbalance.per.broker.percentage": "0",
        "auto.create.topics.enable": "false",
        "offsets.topic.num.partitions": "2",
        "offsets.topic.replication.factor": str(min(3, brokers)),
        "group.initial.rebalance.delay.ms": "0",
    }
    replication = min(3, brokers)
    topics = (
        TopicPlan("all", 2, replication, min(2, replication), -1, {}),
        TopicPlan("weak", 1, replication, min(chance.choice((1, 2)), brokers), chance.choice((0, 1, 1, -1)), {}),
        TopicPlan("anew", 1, min(chance.choice((2, 3)), brokers), 1, -1, {}),
        *(each for each in _topics_that_lose_records(chance, replication) if chance.random() < 0.4),
    )
    return Options(
        seed,
        brokers,
        length_s,
        topics,
        config,
        weights,
        tuple(each for each in workloads if random.Random(f"{seed}/has {each}").random() < 0.35),
        faults_per_minute=faults_per_minute if any(weights.values()) else 0.0,
        longest_fault_s=chance.choice((2.0, 8.0, 15.0)),
        write_pause_s=chance.choice((1.0, 1.5, 3.0, 3.0, 6.0, 6.0)),
        latency_s=chance.choice((0.001, 0.02, 0.05)),
        jitter_s=chance.choice((0.0, 0.01, 0.05)),
        zookeeper_latency_s=chance.choice((0.002, 0.02, 0.1)),
        disk_delay_s=chance.choice((0.0, 0.005, 0.02)),
        beat_s=chance.choice((0.1, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5)),
        clock_rates=tuple(1 + chance.choice((0, 0, 1e-5, -1e-4, 1e-3)) for _ in range(brokers)),
        wall_skews_ms=tuple(chance.choice((0, 0, 50, -2_000)) for _ in range(brokers)),
        lame_link=_lame_link(seed, brokers) if weights.get("cut") else "",
    )


def _lame_link(seed: int, brokers: int) -> str:
    """Every other time."""
    chance = random.Random(f"{seed}/lame link")
    one, other = chance.sample(range(1, brokers + 1), 2)
    return chance.choice(("", f"{one}>{other}"))


def _topics_that_lose_records(chance: random.Random, replication: int) -> Iterator[TopicPlan]:
    """By retention or compaction, with segments that are full after a few records."""
    small = {"segment.bytes": "1000", "index.interval.bytes": "500"}
    rule = chance.choice(({"retention.bytes": "3000"}, {"retention.ms": "10000"}))
    yield TopicPlan("short", 1, replication, min(2, replication), -1, {**small, **rule})
    ratio = chance.choice(("0.01", "0.5"))
    compact = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": ratio, **small}
    yield TopicPlan("newest", 1, replication, min(2, replication), -1, compact)
