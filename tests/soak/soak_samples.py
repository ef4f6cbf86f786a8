"""What brokers take from their machine, sampled: descriptors, memory, bytes and files of their logs; and its bounds.

Flat means: the mean of the last third is not above the mean of the first third (of what comes after the warm-up) by
more than a stated slack. Only processes that have been up for some time count, since a start needs more and less.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from strandline.cli.process import ProcessId, identify

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
WARM_AFTER_S = 10.0
"""Of a broker's process: then its start is over."""
WARM_UP_SHARE, WARM_UP_S = 0.2, 40.0
"""The longer of the two, but half of the run at most: then `retention.bytes` is reached, and memory was used once."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Of one broker. `age_s`: of its process, 0 while there is none; what follows is 0 then, but for the files."""

    at_s: float
    broker_id: int
    age_s: float
    descriptors: int
    rss_bytes: int
    worker_rss_bytes: int
    workers: int
    segments: int
    log_dir_bytes: int
    live_bytes: Mapping[str, int]
    """Per partition: .log files in use."""
    put_aside_bytes: int
    oldest_put_aside_s: float


def take(at_s: float, broker_id: int, pid: int | None, age_s: float, log_dir: Path) -> tuple[Sample, list[ProcessId]]:
    """And the broker's workers. Blocking: reads /proc and looks at every file of the folder."""
    descriptors = rss = worker_rss = 0
    workers: list[int] = []
    if pid is not None:
        try:
            descriptors = len(os.listdir(f"/proc/{pid}/fd"))
            rss = _rss_bytes(pid)
            children = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
            workers = [int(each) for of_thread in children for each in of_thread]
            worker_rss = sum(_rss_bytes(worker) for worker in workers)
        except OSError:  # it ended meanwhile
            age_s = 0.0
    live: dict[str, int] = {}
    everything = put_aside = segments = 0
    oldest_put_aside_s, now = 0.0, time.time()
    for path, info in _files(log_dir):
        everything += info.st_size
        if path.name.endswith(".deleted") or path.parent.name.endswith("-delete"):
            put_aside += info.st_size
            oldest_put_aside_s = max(oldest_put_aside_s, now - info.st_ctime)
        elif path.suffix == ".log":
            live[path.parent.name] = live.get(path.parent.name, 0) + info.st_size
            segments += 1
    sample = Sample(
        round(at_s, 1),
        broker_id,
        round(age_s, 1),
        descriptors,
        rss,
        worker_rss,
        len(workers),
        segments,
        everything,
        live,
        put_aside,
        round(oldest_put_aside_s, 1),
    )
    return sample, [found for each in workers if (found := identify(each)) is not None]


def _rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES


def _files(log_dir: Path) -> Iterable[tuple[Path, os.stat_result]]:
    for folder, _, names in os.walk(log_dir):
        for name in names:
            path = Path(folder, name)
            try:
                yield path, path.stat()
            except FileNotFoundError:  # renamed or removed meanwhile
                continue


@dataclass(frozen=True, slots=True)
class Bound:
    """One figure and what it may be. `text` says where the limit comes from."""

    name: str
    value: float
    limit: float
    unit: str
    text: str

    @property
    def holds(self) -> bool:
        return self.value <= self.limit

    def as_json(self) -> dict[str, object]:
        return {**asdict(self), "holds": self.holds}


def thirds(samples: Sequence[Sample], seconds: float) -> list[list[Sample]]:
    """Of what was sampled after the warm-up, of processes that are warm themselves."""
    begin = max(seconds * WARM_UP_SHARE, min(WARM_UP_S, seconds / 2))
    width = max((seconds - begin) / 3, 1e-9)
    found: list[list[Sample]] = [[], [], []]
    for sample in samples:
        if begin <= sample.at_s <= seconds and sample.age_s >= WARM_AFTER_S:
            found[min(2, int((sample.at_s - begin) / width))].append(sample)
    return found


def flatness(samples: Sequence[Sample], seconds: float) -> list[Bound]:
    """Empty where too little was seen to say anything."""
    first, _, last = thirds(samples, seconds)
    if len(first) < 5 or len(last) < 5:
        return []
    bounds = []
    for name, unit, slack in (
        ("descriptors", "", 10.0),
        ("rss_bytes", "bytes", 15e6),
        ("worker_rss_bytes", "bytes", 30e6),
    ):
        before = statistics.fmean(getattr(sample, name) for sample in first)
        after = statistics.fmean(getattr(sample, name) for sample in last)
        told = f"{slack / 1e6:.0f} MB" if unit else f"{slack:.0f}"
        text = f"mean of the last third; the first third's x 1.15 + {told}"
        bounds.append(Bound(f"{name}, flat", after, before * 1.15 + slack, unit, text))
    return bounds


def peak(samples: Iterable[Sample], topic: str) -> int:
    """Most bytes that any partition replica of the topic had in use."""
    return max((size for sample in samples for size in _of(sample, topic)), default=0)


def typical(samples: Sequence[Sample], topic: str, seconds: float) -> float:
    """Median of the last third."""
    sizes = [size for sample in thirds(samples, seconds)[2] for size in _of(sample, topic)]
    return statistics.median(sizes) if sizes else 0.0


def _of(sample: Sample, topic: str) -> list[int]:
    return [size for name, size in sample.live_bytes.items() if name.rpartition("-")[0] == topic]
