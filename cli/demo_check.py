"""Is what a consumer read exactly what was produced? Pure functions; they know records and acknowledgements only.

Every acknowledged batch names the offsets at which its records stand. Those records, in the order of their offsets,
must be the files, whole and in order. What stands at other offsets was appended by an attempt whose answer got lost: it
must be the content of whole batches that the producer recorded as retried, nothing else. (An idempotent producer, as
the demo's, records none. Without idempotence a retry may double a batch, but never lose, alter or reorder a record.)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from strandline.cli.demo_source import SourceFile


class DemoFailed(Exception):
    """Something was missing, doubled, altered or out of order; names it."""


class Acknowledged(NamedTuple):
    """Records `[base_offset, base_offset + records_count)` of a partition, as the producer was told."""

    base_offset: int
    records_count: int
    retried: bool


class Consumed(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None


@dataclass(slots=True)
class Findings:
    """What the check counted. `doubled`: the records that stand twice."""

    files: int = 0
    records: int = 0
    doubled_batches: int = 0
    doubled: list[Consumed] = field(default_factory=list)


def check(
    files: Iterable[SourceFile],
    logs: Mapping[int, Sequence[Consumed]],
    acknowledged: Mapping[int, Sequence[Acknowledged]],
) -> Findings:
    """Partition → its records in the order in which they were read, and its acknowledgements. DemoFailed."""
    findings = Findings()
    pieces: dict[bytes | None, tuple[int, list[bytes]]] = {}
    for partition in sorted(logs):
        once = _without_doubled(partition, logs[partition], acknowledged.get(partition, ()), findings)
        for record in once:
            home, values = pieces.setdefault(record.key, (partition, []))
            if home != partition:
                raise DemoFailed(f"{_name(record.key)} is in partition {home} and in partition {partition}")
            if record.value is None:
                raise DemoFailed(f"partition {partition}, offset {record.offset}: a record without a value")
            values.append(record.value)
        findings.records += len(once)
    for file in files:
        if file.key not in pieces:
            raise DemoFailed(f"{file.name} is missing")
        _compare(file, *pieces.pop(file.key))
        findings.files += 1
    for key in pieces:
        raise DemoFailed(f"{_name(key)} was never produced")
    return findings


def _without_doubled(
    partition: int, log: Sequence[Consumed], acknowledged: Sequence[Acknowledged], findings: Findings
) -> list[Consumed]:
    """The records at acknowledged offsets, once all others are explained."""
    for earlier, record in itertools.pairwise(log):
        if record.offset <= earlier.offset:
            raise DemoFailed(f"partition {partition}: offset {record.offset} was read after {earlier.offset}")
    position = {record.offset: index for index, record in enumerate(log)}
    is_acknowledged = bytearray(len(log))
    for batch in acknowledged:
        for offset in range(batch.base_offset, batch.base_offset + batch.records_count):
            if (index := position.get(offset)) is None:
                raise DemoFailed(f"partition {partition}: the acknowledged record at offset {offset} is missing")
            if is_acknowledged[index]:
                raise DemoFailed(f"partition {partition}: offset {offset} was acknowledged twice")
            is_acknowledged[index] = 1
    retried = [
        [log[position[batch.base_offset + number]][1:] for number in range(batch.records_count)]
        for batch in sorted(acknowledged)
        if batch.retried
    ]
    index = 0
    while index < len(log):
        if is_acknowledged[index]:
            index += 1
            continue
        batch_size = _doubled_at(log, index, is_acknowledged, retried)
        if batch_size == 0:
            record = log[index]
            raise DemoFailed(
                f"partition {partition}, offset {record.offset}: a record of {_name(record.key)} that nobody "
                "acknowledged and no retry explains"
            )
        findings.doubled_batches += 1
        findings.doubled += log[index : index + batch_size]
        index += batch_size
    return [record for index, record in enumerate(log) if is_acknowledged[index]]


def _doubled_at(
    log: Sequence[Consumed], start: int, is_acknowledged: bytearray, retried: Sequence[Sequence[tuple[object, ...]]]
) -> int:
    """Records of a retried batch that stands at `start` once more; 0 when there is none."""
    for contents in retried:
        end = start + len(contents)
        if (
            end <= len(log)
            and not any(is_acknowledged[start:end])
            and all(log[start + number][1:] == wanted for number, wanted in enumerate(contents))
        ):
            return len(contents)
    return 0


def _compare(file: SourceFile, partition: int, values: list[bytes]) -> None:
    if b"\n".join(values) == file.content:
        return
    wanted = file.lines
    for number, (found, line) in enumerate(zip(values, wanted, strict=False), 1):
        if found != line:
            raise DemoFailed(f"{file.name}: line {number} is {found[:60]!r} instead of {line[:60]!r}")
    raise DemoFailed(f"{file.name}: {len(values)} lines instead of {len(wanted)} (partition {partition})")


def _name(key: bytes | None) -> str:
    return repr(key) if key is None else key.decode(errors="backslashreplace")
