"""The part of an audit that runs on executors: some pieces of partitions, one after the other.

A task reads a range of offsets from every replica in turn, a chunk at a time, and hands back what it found: numbers and
texts, some bytes per replica. The records themselves go from the brokers to the task and no further. (A task for each
replica would have to hand the checksums of all batches to a third one, through a shuffle; this way nothing is shuffled,
and a task needs the memory of one chunk per replica.)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from strandline.client.replicas.comparison import Compared, Finding
from strandline.client.replicas.looking import OFFSETS_PER_WORK, Reader, Work, look

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

TASKS_PER_SLOT = 4
"""So that all slots are busy to the end, though pieces differ in bytes."""

OFFSETS_PER_PIECE = 10_000
"""A piece costs as much as these, however few it has."""

SCHEMA = "work int, broker int, compared string"


def run_on_spark(
    spark: SparkSession, settings: Mapping[str, Any], works: Sequence[Work]
) -> list[tuple[Work, dict[int, Compared]]]:
    """What became of each piece. settings: of our admin client. What a task raises comes as Spark's exception."""
    if not works:
        return []
    slots = spark.sparkContext.defaultParallelism
    numbers = bundled([work.end - work.start for work in works], TASKS_PER_SLOT * slots)
    task = AuditTask(settings, works, numbers)
    rows = spark.range(0, len(numbers), 1, len(numbers)).mapInArrow(task, SCHEMA).collect()
    results: list[tuple[Work, dict[int, Compared]]] = [(work, {}) for work in works]
    for row in sorted(rows, key=lambda row: row.work):
        results[row.work][1][row.broker] = decoded(row.compared)
    return results


def bundled(sizes: Sequence[int], tasks: int) -> list[list[int]]:
    """Numbers of pieces, those of a task together: small partitions share one. About so many tasks, or more where none
    would be longer than one piece may be."""
    costs = [size + OFFSETS_PER_PIECE for size in sizes]
    most = min(OFFSETS_PER_WORK, -(-sum(costs) // tasks))
    bundles: list[list[int]] = []
    left = 0
    for number, cost in enumerate(costs):
        if not bundles or cost > left:
            bundles.append([])
            left = most
        bundles[-1].append(number)
        left -= cost
    return bundles


class AuditTask:
    """Given the numbers of bundles, looks at the works that are in them."""

    def __init__(self, settings: Mapping[str, Any], works: Sequence[Work], bundles: Sequence[Sequence[int]]) -> None:
        self.settings = dict(settings)
        self.works = list(works)
        self.bundles = [list(bundle) for bundle in bundles]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from strandline import Admin

        with Admin(**self.settings) as admin:
            reader = Reader(admin.read_replica)
            for batch in batches:
                for number in (each for bundle in batch["id"].to_pylist() for each in self.bundles[bundle]):
                    found = look(reader, self.works[number])
                    columns = {
                        "work": pa.array([number] * len(found), pa.int32()),
                        "broker": pa.array(list(found), pa.int32()),
                        "compared": pa.array([encoded(each) for each in found.values()], pa.string()),
                    }
                    yield pa.RecordBatch.from_pydict(columns)


def encoded(compared: Compared) -> str:
    return json.dumps(asdict(compared))


def decoded(text: str) -> Compared:
    fields = json.loads(text)
    findings = [Finding(**each) for each in fields.pop("findings")]
    return Compared(**fields, findings=findings)
