"""One line of what `dump-log` prints."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class DumpEntry:
    """One line of output. `fields` holds the same for programs; keys and values of records are bytes."""

    kind: str
    """file, start, batch, record, index, time_index, epoch, producer, checkpoint, property, segments, sane, damage"""
    line: str
    fields: dict[str, Any] = field(default_factory=dict)
    is_damage: bool = False


def damage(line: str, **fields: Any) -> DumpEntry:
    return DumpEntry("damage", line, {"message": line, **fields}, is_damage=True)
