"""Promises about topics that forget: retention takes old records away, compaction superseded ones, and nothing else.

A topic under retention, per partition (`check_retained`): what was acknowledged stands at its offset, unaltered, unless
it lies below the log start; and whoever read it before saw the same there. A compacted topic (`check_compacted`): of
each key the newest acknowledged value is what a reader gets; a newer one only where nobody was told what became of it.
Replicas are compared from their files, of stopped brokers or of logs that rest (`same_bytes`, `same_values`).

Pure: what was told and what was found come in, `PromiseBroken` comes out.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from strandline.protocol.records import decode_records, scan
from strandline.testkit.verification import Outcomes, PromiseBroken, check

UNREAD = -1
_FILLER = b"0123456789abcdef"


def padded(value: bytes, size_bytes: int) -> bytes:
    """`value` and what makes it as long as wanted; `unpadded` checks both."""
    filler_bytes = max(0, size_bytes - len(value) - 1)
    return value + b" " + (_FILLER * (filler_bytes // len(_FILLER) + 1))[:filler_bytes]


def unpadded(value: bytes) -> bytes:
    """PromiseBroken where the filler is not what was sent."""
    body, _, _ = value.partition(b" ")
    if value != padded(body, len(value)):
        raise PromiseBroken(f"a record holds {value[:80]!r}, which nobody sent")
    return body


# --- retention --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Reading:
    """What somebody who kept reading saw of one partition: offset → number, and where reading goes on."""

    numbers: array[int] = field(default_factory=lambda: array("q"))
    next_offset: int = 0

    def note(self, offset: int, number: int) -> None:
        """PromiseBroken where offsets were passed over without a word (`skip_to` is the word)."""
        if offset != self.next_offset:
            raise PromiseBroken(f"a reader at offset {self.next_offset} was given {offset}: what lay between was lost")
        self.numbers.extend([UNREAD] * (offset - len(self.numbers)))
        self.numbers.append(number)
        self.next_offset = offset + 1

    def skip_to(self, offset: int) -> None:
        """The log begins there now. PromiseBroken where reading went further: what was read was committed."""
        if offset < self.next_offset:
            raise PromiseBroken(f"a reader at offset {self.next_offset} was sent back to {offset}")
        self.next_offset = offset


@dataclass(frozen=True, slots=True)
class Retained:
    """How the acknowledged records of a partition were found to be kept."""

    standing: int
    expired_seen: int
    """Gone, and read at their offset before."""
    expired_unseen: int


def check_retained(
    partition: int, told: Outcomes, reading: Reading, found: Sequence[tuple[int, bytes]], begin: int
) -> Retained:
    """`found`: (offset, value) of all that stands now, from the log start `begin` on."""
    expired = {number: offset for number, offset in told.acked.items() if offset < begin}
    kept = Outcomes(
        {number: offset for number, offset in told.acked.items() if offset >= begin},
        told.retried,
        told.failed,
        told.unknown,
    )
    if found and found[0][0] != begin:
        raise PromiseBroken(f"partition {partition}: the log begins at {begin}, its first record is {found[0][0]}")
    check({partition: kept}, {partition: found})
    seen = 0
    for number, offset in told.acked.items():
        read = reading.numbers[offset] if offset < len(reading.numbers) else UNREAD
        if read not in (UNREAD, number):
            raise PromiseBroken(
                f"partition {partition}: {number} was acknowledged at offset {offset}, where a reader saw {read}"
            )
        seen += read == number and offset < begin
    return Retained(len(kept.acked), seen, len(expired) - seen)


# --- compaction -------------------------------------------------------------------------------------------------


def keyed_value(partition: int, key: int, number: int) -> bytes:
    body = b"%d:%d:%d" % (partition, key, number)
    return b"%s:%08x" % (body, zlib.crc32(body))


def read_keyed_value(value: bytes) -> tuple[int, int, int]:
    """(partition, key, number). PromiseBroken for bytes that were never sent."""
    body, _, checksum = value.rpartition(b":")
    if b"%08x" % zlib.crc32(body) != checksum:
        raise PromiseBroken(f"a record holds {value[:80]!r}, which nobody sent")
    partition, key, number = body.split(b":")
    return int(partition), int(key), int(number)


@dataclass(slots=True)
class KeyHistory:
    """Of one key, whose records are sent one after the other: each is settled before the next one is sent."""

    sent: int = 0
    """Numbers count from 1."""
    acked: int = 0
    """The newest number acknowledged; 0: none."""
    is_outstanding: bool = False
    open_ended: bool = False
    """The last record's outcome is unknown: it may come yet, so that nothing more is sent to this key."""
    tombstones: set[int] = field(default_factory=set)
    repeated: set[int] = field(default_factory=set)
    """Sent again: a late second copy may stand behind newer ones."""

    def outcome_is(self, number: int | None) -> bool:
        """Is it legal that this is the newest? None: the key is gone, or its newest record is a tombstone."""
        if number is None:
            if not self.acked or self.acked in self.tombstones or self.tombstones & self.repeated:
                return True
            return self.open_ended and self.sent in self.tombstones
        return number == self.acked or (self.open_ended and number == self.sent) or number in self.repeated


def check_compacted(partition: int, told: Sequence[KeyHistory], newest: Mapping[int, int | None]) -> int:
    """`newest`: key → number of its newest value (None or left out: deleted). The number of keys that have one."""
    for key, history in enumerate(told):
        found = newest.get(key)
        if not history.outcome_is(found):
            raise PromiseBroken(
                f"partition {partition}, key {key}: {history.acked} was acknowledged "
                f"{'(a tombstone) ' if history.acked in history.tombstones else ''}"
                f"and {history.sent} sent last, the newest is {found}"
            )
    return sum(found is not None for found in newest.values())


def newest_numbers(partition: int, records: Iterable[tuple[bytes | None, bytes | None]]) -> dict[int, int | None]:
    """From (key, value) in the order of the log: key → number of the newest value, None for a tombstone."""
    newest: dict[int, int | None] = {}
    for key, value in records:
        assert key is not None
        number = None
        if value is not None:
            at, stated, number = read_keyed_value(unpadded(value))
            if (at, b"%d" % stated) != (partition, key):
                raise PromiseBroken(f"partition {partition}: key {key!r} holds the value {value[:80]!r}")
        newest[int(key)] = number
    return newest


# --- replicas ---------------------------------------------------------------------------------------------------


def same_bytes(partition: str, logs: Mapping[int, bytes]) -> tuple[int, int]:
    """broker → its .log files, joined: equal byte for byte from the highest first offset on, to the same end. Returns
    (first offset, bytes) of what they share. PromiseBroken; where they differ it names the offset."""
    batches = {
        broker_id: {header.base_offset: (position, header) for position, header in scan(memoryview(log))}
        for broker_id, log in logs.items()
    }
    begin = max((min(found, default=0) for found in batches.values()), default=0)
    tails: dict[int, bytes] = {}
    for broker_id, log in logs.items():
        if log and begin not in batches[broker_id]:
            raise PromiseBroken(f"{partition}: broker {broker_id} has no batch at offset {begin}, where another begins")
        tails[broker_id] = log[batches[broker_id][begin][0] :] if log else b""
        scanned = sum(header.size_bytes for _, header in batches[broker_id].values())
        if scanned != len(log):
            raise PromiseBroken(f"{partition}: broker {broker_id} has {len(log)} bytes, {scanned} of them are batches")
    first, reference = next(iter(tails.items()))
    for broker_id, tail in tails.items():
        if tail != reference:
            at = next((n for n, (a, b) in enumerate(zip(tail, reference, strict=False)) if a != b), None)
            where = (
                f"{at} bytes behind offset {begin}" if at is not None else f"in length: {len(reference)}, {len(tail)}"
            )
            raise PromiseBroken(f"{partition}: brokers {first} and {broker_id} differ {where}")
    return begin, len(reference)


def same_values(partition: str, logs: Mapping[int, bytes]) -> dict[bytes, tuple[int, bytes]]:
    """broker → its .log files, joined: each has the same newest value of each key, at the same offset (a tombstone is
    as good as nothing). Returns key → (offset, value). PromiseBroken."""
    values: dict[int, dict[bytes, tuple[int, bytes]]] = {}
    for broker_id, log in logs.items():
        newest: dict[bytes, tuple[int, bytes | None]] = {}
        last_offset = -1
        for record in decode_records(memoryview(log)):
            if record.offset <= last_offset:
                raise PromiseBroken(f"{partition}: broker {broker_id} has offset {record.offset} after {last_offset}")
            last_offset = record.offset
            assert record.key is not None
            newest[bytes(record.key)] = (record.offset, None if record.value is None else bytes(record.value))
        values[broker_id] = {key: (at, value) for key, (at, value) in newest.items() if value is not None}
    first, reference = next(iter(values.items()))
    for broker_id, found in values.items():
        for key in sorted(reference.keys() | found.keys()):
            if found.get(key) != reference.get(key):
                raise PromiseBroken(
                    f"{partition}: of key {key!r} brokers {first} and {broker_id} have "
                    f"{_shown(reference.get(key))} and {_shown(found.get(key))}"
                )
    return reference


def _shown(found: tuple[int, bytes] | None) -> str:
    return "nothing" if found is None else f"{found[1][:40]!r} at offset {found[0]}"
