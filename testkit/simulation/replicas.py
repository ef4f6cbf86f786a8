"""What must not differ between the replicas of a partition at rest, and where each of them may begin.

* They have the same bytes from where all of them begin. One that is compacted is so by each broker for itself: there
  one offset has one value wherever it stands, and the newest record of each key is the same one everywhere.
* None begins before what DeleteRecords answered, and none behind what it was asked for; where retention deletes, too,
  none begins behind what is committed (invariant 19).
"""

from __future__ import annotations

from collections.abc import Iterator

from strandline.storage.log.log import Log
from strandline.testkit.inspection import log_bytes, log_records
from strandline.testkit.simulation.history import Stream
from strandline.testkit.simulation.world import Head, World


def differences(world: World, stream: Stream) -> Iterator[str]:
    """Of a partition that somebody leads, and whose replicas all run."""
    logs = world.cluster.logs(stream.tp)
    plan = world.topics[stream.tp.topic].plan
    head = world.heads.get(stream, Head())
    for broker, log in logs.items():
        most = world.cluster.partition(broker, stream.tp).high_watermark if plan.has_retention else head.asked
        if not head.answered <= log.log_start_offset <= most:
            told = f"{head.answered} was answered, {head.asked} asked for"
            yield f"log-start: {stream}: begins on broker {broker} at {log.log_start_offset}, {most} at most; {told}"
    if plan.is_compacted:
        yield from _of_compacted(stream, logs)
        return
    start = max(log.log_start_offset for log in logs.values())
    if len({log_bytes(log, log.log_end_offset, start) for log in logs.values()}) > 1:
        yield f"replicas-differ: {stream}: once all was at rest"


def _of_compacted(stream: Stream, logs: dict[int, Log]) -> Iterator[str]:
    values: dict[int, bytes | None] = {}
    newest: dict[bytes | None, int] = {}
    for broker, log in logs.items():
        own = {record.key: record.offset for record in log_records(log)}
        if own != (newest := newest or own):
            yield f"replicas-differ: {stream}: newest records of keys: {own} on broker {broker}, elsewhere {newest}"
        for record in log_records(log):
            if values.setdefault(record.offset, record.value) != record.value:
                text = f"{record.value!r} stands at {record.offset} on broker {broker}"
                yield f"replicas-differ: {stream}: {text}, elsewhere {values[record.offset]!r}"
