"""The cases of `against_kafka.py`, and what each has to reach: pure data.

Figures of a run: `mb_s` and `rps` (10^6 bytes and records per second), `p50`, `p99`, `p999` (latency, ms), `ms_mb` and
`us_rec` (CPU of all three brokers per MB and per record), `cpu_percent` (of one core), `lost` (members).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Goal:
    """What one figure has to be: of ours to Kafka's, or of ours alone (`is_absolute`)."""

    figure: str
    least: float | None = None
    most: float | None = None
    is_absolute: bool = False

    def value(self, ours: float, kafkas: float | None) -> float | None:
        """None: there is nothing to compare with."""
        if self.is_absolute:
            return ours
        return ours / kafkas if kafkas else None

    def holds(self, value: float) -> bool:
        return (self.most is None or value <= self.most) and (self.least is None or value >= self.least)

    def __str__(self) -> str:
        bound = f"≤ {self.most:g}" if self.most is not None else f"≥ {self.least:g}"
        return bound if self.is_absolute else f"{bound} ×"


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    goals: tuple[Goal, ...]


@dataclass(frozen=True, slots=True)
class ProduceCase(Case):
    """Records offered at `records_per_second` (0: as many as it takes) with librdkafka's `properties`."""

    properties: tuple[str, ...] = ()
    record_bytes: int = 1000
    records_per_second: int = 0


@dataclass(frozen=True, slots=True)
class ConsumeCase(Case):
    """Records that are still in the page cache."""

    record_bytes: int = 1000


@dataclass(frozen=True, slots=True)
class GroupCase(Case):
    """Members in groups of ten, each with a heartbeat and a commit every second."""

    members: int = 100


SMALL_BATCHES = ("batch.size=16384", "linger.ms=5")
CASES: tuple[Case, ...] = (
    ProduceCase(
        "16 KB batches, acks=all",
        (Goal("mb_s", least=3.5), Goal("ms_mb", most=0.25)),
        ("acks=all", *SMALL_BATCHES),
    ),
    ProduceCase(
        "16 KB batches, acks=1",
        (Goal("mb_s", least=2.5), Goal("ms_mb", most=0.4)),
        ("acks=1", *SMALL_BATCHES),
    ),
    ProduceCase(
        "16 KB batches, acks=0",
        (Goal("mb_s", least=2.5), Goal("ms_mb", most=0.4)),
        ("acks=0", *SMALL_BATCHES),
    ),
    ProduceCase(
        "default batches, 1 KB",
        (Goal("mb_s", least=1.1), Goal("ms_mb", most=0.7)),
        ("acks=all", "linger.ms=5"),
    ),
    ProduceCase(
        "default batches, 100 B",
        (Goal("mb_s", least=1.1), Goal("ms_mb", most=0.7)),
        ("acks=all", "linger.ms=5"),
        record_bytes=100,
    ),
    ConsumeCase("consume, 1 KB", (Goal("mb_s", least=1.0), Goal("ms_mb", most=0.9))),
    ProduceCase(
        "10 000 records/s, linger 0",
        (
            Goal("rps", least=9_800, is_absolute=True),
            Goal("p99", most=10, is_absolute=True),
            Goal("us_rec", most=0.25),
        ),
        ("acks=all", "linger.ms=0"),
        records_per_second=10_000,
    ),
    # Offered without a bound, librdkafka makes megabytes of what has to wait: then this is the case of default batches.
    ProduceCase(
        "40 000 records/s, linger 0",
        (Goal("rps", least=4.0),),
        ("acks=all", "linger.ms=0"),
        records_per_second=40_000,
    ),
    ProduceCase(
        "10 MB/s, linger 5",
        (Goal("p99", most=1.0), Goal("p999", most=0.7), Goal("ms_mb", most=0.4)),
        ("acks=all", "linger.ms=5"),
        records_per_second=10_000,
    ),
    ProduceCase(
        "50 MB/s, linger 5",
        (Goal("p99", most=0.6), Goal("p999", most=0.5), Goal("ms_mb", most=0.4)),
        ("acks=all", "linger.ms=5"),
        records_per_second=50_000,
    ),
    ProduceCase(
        "200 records/s, linger 0",
        (Goal("p50", most=1.0), Goal("p99", most=0.7)),
        ("acks=all", "linger.ms=0"),
        records_per_second=200,
    ),
    GroupCase("100 members", (Goal("cpu_percent", most=1.0), Goal("lost", most=0, is_absolute=True)), 100),
    GroupCase("1000 members", (Goal("cpu_percent", most=1.0), Goal("lost", most=0, is_absolute=True)), 1000),
)
WHOLE = Case("start, memory after all of it", (Goal("start_s", most=0.5), Goal("rss_mb", most=0.2)))
"""`start_s`: from the first process to the first acknowledged record; `rss_mb`: of one broker."""
