"""What a benchmark sends, and when: values and keys that are the same in every run, and the schedule of a rate. Pure.

Of a rate, a record's latency counts from when it *should* have been sent. If it counted from when it was, a cluster
that stands still for a second would spoil one latency and keep all records of that second out of the statistics
(coordinated omission).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

DIFFERENT_VALUES = 1000
"""More than a batch of 16 KB has at 100 bytes, so that a codec finds no copies."""

LOOK_AGAIN_S = 0.01

_LETTERS = bytes(ord("A") + byte % 26 for byte in range(256))
"""Kafka's tool sends capital letters at random, too: figures with a codec are comparable."""

Pair = tuple[bytes | None, bytes]


@dataclass(frozen=True, slots=True)
class Schedule:
    """When record number n should be sent: n / `rate` seconds after the beginning; without a rate, as soon as may be.
    `records`, `seconds`: when it is over; at least one of them is given."""

    records: int | None
    seconds: float | None
    rate: float | None
    at_once: int
    """Most records that are handed over in one call."""

    def due(self, sent: int, now_s: float) -> int:
        """How many are to be sent now, behind those that have been."""
        count = self.at_once if self.rate is None else min(int(now_s * self.rate) + 1 - sent, self.at_once)
        if self.records is not None:
            count = min(count, self.records - sent)
        return max(count, 0)

    def is_over(self, sent: int, now_s: float) -> bool:
        """Nothing is to be sent any more."""
        return (self.records is not None and sent >= self.records) or (
            self.seconds is not None and now_s >= self.seconds
        )

    def intended_s(self, number: int, now_s: float) -> float:
        """When record `number` should be sent, if it is sent now."""
        return now_s if self.rate is None else number / self.rate

    @property
    def step_s(self) -> float:
        """Between the intended times of two records."""
        return 0.0 if self.rate is None else 1 / self.rate


@dataclass(frozen=True, slots=True)
class Windowed(Schedule):
    """Never more than `window` records under way; `settled` tells how many no longer are. So sending never blocks, and
    whoever drives it can do something else in between."""

    window: int
    settled: Callable[[], int]

    def due(self, sent: int, now_s: float) -> int:
        return max(min(Schedule.due(self, sent, now_s), self._room(sent)), 0)

    def intended_s(self, number: int, now_s: float) -> float:
        """Where there is no room, when to look again."""
        intended_s = Schedule.intended_s(self, number, now_s)
        return intended_s if self._room(number) > 0 else max(intended_s, now_s + LOOK_AGAIN_S)

    def _room(self, sent: int) -> int:
        return self.window - (sent - self.settled())


class Load(Protocol):
    """What is sent."""

    @property
    def size_bytes(self) -> int:
        """Of each value."""

    def slice(self, first: int, count: int) -> list[Pair]:
        """(key, value) of the records with these numbers."""


class Records(NamedTuple):
    """(key, value) of each record of a load, which begins anew behind the last one."""

    pairs: list[Pair]

    @property
    def size_bytes(self) -> int:
        return len(self.pairs[0][1])

    def slice(self, first: int, count: int) -> list[Pair]:
        """Those of the records with these numbers."""
        place = first % len(self.pairs)
        found = self.pairs[place : place + count]
        while len(found) < count:
            found = found + self.pairs[: count - len(found)]
        return found


HEAD = struct.Struct(">QQ")
"""How a numbered value begins: which run it is of, for others may write to the same topic, and which record of that."""


@dataclass(frozen=True, slots=True)
class Numbered:
    """Values that say which they are, so that who reads them knows what is missing, and what is there twice."""

    run_id: int
    size_bytes: int

    def slice(self, first: int, count: int) -> list[Pair]:
        rest = value_of(0, self.size_bytes - HEAD.size)
        return [(None, HEAD.pack(self.run_id, number) + rest) for number in range(first, first + count)]

    def number_of(self, value: bytes | None) -> int | None:
        """Of a value that was read; None: it is of no record of this run."""
        if value is None or len(value) != self.size_bytes:
            return None
        run_id, number = HEAD.unpack_from(value)
        return int(number) if run_id == self.run_id else None


def load(size_bytes: int, keys: int) -> Records:
    """Values of that size; keys: how many different ones there are, each as often as the others, 0 for none."""
    values = [value_of(number, size_bytes) for number in range(DIFFERENT_VALUES)]
    if not keys:
        pairs: list[Pair] = [(None, value) for value in values]
        return Records(pairs)
    rounds = -(-DIFFERENT_VALUES // keys)
    keyed: list[Pair] = [(b"key-%d" % number, values[number % DIFFERENT_VALUES]) for number in range(keys)]
    return Records(keyed * rounds)


def value_of(number: int, size_bytes: int) -> bytes:
    """Capital letters without a pattern."""
    return hashlib.shake_128(b"%d" % number).digest(size_bytes).translate(_LETTERS)
