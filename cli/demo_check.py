"""Is what a consumer read exactly what was produced? Pure functions; they know records and acknowledgements only.

Every acknowledged batch names the offsets at which its records stand. Those records, in the order of their offsets,
must be the files, whole and in order. Nothing stands at other offsets: the producer is idempotent, so an attempt whose
answer got lost doubles nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from strandline.cli.demo_source import SourceFile


class DemoFailed(Exception):
    """Something was missing, doubled, altered or out of order; names it."""


class Acknowledged(NamedTuple):
    """Records `[base_offset, base_offset + records_count)` of a partition, as the producer was told."""

    base_offset: int
    records_count: int


class Consumed(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None


@dataclass(slots=True)
class Findings:
    """What the check counted."""

    files: int = 0
    records: int = 0


def check(
    files: Iterable[SourceFile],
    logs: Mapping[int, Sequence[Consumed]],
    acknowledged: Mapping[int, Sequence[Acknowledged]],
) -> Findings:
    """Partition → its records in the order in which they were read, and its acknowledgements. DemoFailed."""
    findings = Findings()
    pieces: dict[bytes | None, tuple[int, list[bytes]]] = {}
    for partition in sorted(logs):
        log = logs[partition]
        _check_offsets(partition, log, acknowledged.get(partition, ()))
        for record in log:
            home, values = pieces.setdefault(record.key, (partition, []))
            if home != partition:
                raise DemoFailed(f"{_name(record.key)} is in partition {home} and in partition {partition}")
            if record.value is None:
                raise DemoFailed(f"partition {partition}, offset {record.offset}: a record without a value")
            values.append(record.value)
        findings.records += len(log)
    for file in files:
        if file.key not in pieces:
            raise DemoFailed(f"{file.name} is missing")
        _compare(file, *pieces.pop(file.key))
        findings.files += 1
    for key in pieces:
        raise DemoFailed(f"{_name(key)} was never produced")
    return findings


def _check_offsets(partition: int, log: Sequence[Consumed], acknowledged: Sequence[Acknowledged]) -> None:
    """What was acknowledged was read, each once and in order, and nothing else."""
    for earlier, record in itertools.pairwise(log):
        if record.offset <= earlier.offset:
            raise DemoFailed(f"partition {partition}: offset {record.offset} was read after {earlier.offset}")
    unexplained = {record.offset: record for record in log}
    told: set[int] = set()
    for batch in acknowledged:
        for offset in range(batch.base_offset, batch.base_offset + batch.records_count):
            if offset in told:
                raise DemoFailed(f"partition {partition}: offset {offset} was acknowledged twice")
            if unexplained.pop(offset, None) is None:
                raise DemoFailed(f"partition {partition}: the acknowledged record at offset {offset} is missing")
            told.add(offset)
    for record in unexplained.values():
        raise DemoFailed(
            f"partition {partition}, offset {record.offset}: a record of {_name(record.key)} that nobody acknowledged"
        )


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
