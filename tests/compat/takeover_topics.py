"""What has to be true of a topic whoever serves it, told from what was acknowledged and what its configuration allows.

Pure: batches in, a complaint out. A topic is of one *kind*:

| kind | what may happen to it |
|---|---|
| kept | nothing: neither policy nor age may take anything away; every byte stays |
| shortened | the oldest batches may go, as long as retention.bytes remain |
| compacted | a record may go when a later one has its key |
| transactional | nothing; not to be served by who has no read_committed |
| old format | nothing; batches of format 0 or 1, not to be served by who does not know them |

DeleteRecords raises `floor`: nothing below it is ever shown again.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from strandline.protocol.records import decode_records

KINDS = ("kept", "kept", "kept", "shortened", "compacted", "transactional")
RETAINED_BYTES = 20_000
OLD_VERSIONS = ("0.9.0", "0.10.2")
FOREVER = str(2**63 - 1)

HARMLESS = {
    "compression.type": ("producer", "uncompressed", "gzip", "lz4", "snappy", "zstd"),
    "compression.gzip.level": ("-1", "1", "9"),
    "compression.lz4.level": ("1", "9", "17"),
    "compression.zstd.level": ("-5", "3", "22"),
    "file.delete.delay.ms": ("0", "100", "60000"),
    "flush.messages": ("1", "100", FOREVER),
    "flush.ms": ("1", "1000", FOREVER),
    "follower.replication.throttled.replicas": ("*", "0:1", ""),
    "index.interval.bytes": ("0", "1", "500", "4096"),
    "leader.replication.throttled.replicas": ("*", "0:1"),
    "local.retention.bytes": ("-2", "1"),
    "local.retention.ms": ("-2", "1"),
    "max.compaction.lag.ms": (FOREVER,),
    "max.message.bytes": ("200000", "1048588"),
    "message.downconversion.enable": ("true", "false"),
    "message.format.version": ("0.11.0", "2.8-IV1", "3.0-IV1"),
    "message.timestamp.after.max.ms": (FOREVER,),
    "message.timestamp.before.max.ms": (FOREVER,),
    "message.timestamp.difference.max.ms": (FOREVER,),
    "message.timestamp.type": ("CreateTime", "CreateTime", "LogAppendTime"),
    "min.compaction.lag.ms": ("0", "1"),
    "min.insync.replicas": ("1",),
    "preallocate": ("true", "false"),
    "remote.log.copy.disable": ("false",),
    "remote.log.delete.on.disable": ("false",),
    "remote.storage.enable": ("false",),
    "segment.bytes": ("15000", "40000", "1000000"),
    "segment.index.bytes": ("50", "200", "4096", "10485760"),
    "segment.jitter.ms": ("0", "100"),
    "segment.ms": ("1", "1000", "3600000"),
    "unclean.leader.election.enable": ("true", "false"),
}
"""Keys of a topic of Kafka 3.9 and values that delete nothing."""


class Shown(NamedTuple):
    """A record of a transactional topic. `end`: commit (plain records, too), abort or open."""

    value: bytes
    end: str
    producer: str = ""


@dataclass
class Topic:
    """A topic in one life; created anew under the same name it is another object."""

    name: str
    kind: str
    config: dict[str, str]
    old_records: bool
    """Its records are ten days old: whoever applies a default to them deletes them."""
    acknowledged: dict[int, tuple[bytes | None, bytes]] = field(default_factory=dict)
    batches: bytes = b""
    """As they were last served."""
    shown: list[Shown] = field(default_factory=list)
    """The records of a transactional topic in the order of the log."""
    open_producers: list[str] = field(default_factory=list)
    floor: int = 0
    groups: dict[str, int] = field(default_factory=dict)
    transactions: int = 0

    @property
    def is_refused(self) -> bool:
        """Not to be served by us."""
        return self.transactions > 0 or (self.kind == "old format" and bool(self.batches or self.acknowledged))

    def committed(self) -> list[bytes]:
        """What read_committed has to show: nothing of what is open, or behind it."""
        is_open = [record.end == "open" and record.producer in self.open_producers for record in self.shown]
        stable = is_open.index(True) if any(is_open) else len(is_open)
        return [record.value for record in self.shown[:stable] if record.end == "commit"]


def random_topic(name: str, rng: random.Random, *, old_formats: bool, dynamic_default: bool, known_only: bool) -> Topic:
    """`dynamic_default`: the brokers' dynamic default keeps records for ever, so the topic may go without a key of its
    own. `known_only`: of the keys that our broker lets clients set."""
    kind = "old format" if old_formats and not known_only and rng.random() < 0.4 else rng.choice(KINDS)
    if known_only and kind == "transactional":
        kind = "kept"
    keys = [key for key in HARMLESS if not (known_only and is_foreign(key))]
    config = {key: rng.choice(HARMLESS[key]) for key in rng.sample(keys, rng.randint(0, 8))}
    if kind == "old format":
        config |= {"message.format.version": rng.choice(OLD_VERSIONS), "message.timestamp.type": "CreateTime"}
        if config.get("compression.type") == "zstd":
            config["compression.type"] = "gzip"
    elif kind == "compacted":
        config |= {"cleanup.policy": rng.choice(("compact", "compact,delete")), "min.cleanable.dirty.ratio": "0.01"}
    elif kind == "kept" and rng.random() < 0.2:
        config |= {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": rng.choice(("1", "1.0"))}
    if kind == "shortened":
        config |= {"retention.bytes": str(RETAINED_BYTES), "segment.bytes": "15000"}
    if not dynamic_default or rng.random() < 0.5:
        config["retention.ms"] = "-1"
    return Topic(name, kind, config, old_records=rng.random() < 0.5)


def is_foreign(key: str) -> bool:
    """A key that a Kafka knows and our broker does not serve."""
    return key.startswith(("remote.", "local.")) or key.endswith(".level") or key == "message.format.version"


def batches_of(data: bytes) -> Iterator[tuple[int, int, int]]:
    """(position, offset behind it, position behind it) of each batch."""
    at = 0
    while at < len(data):
        base, size = struct.unpack_from(">qi", data, at)
        delta = struct.unpack_from(">i", data, at + 23)[0] if data[at + 16] == 2 else 0
        yield at, base + delta + 1, at + 12 + size
        at += 12 + size


def position_of(data: bytes, offset: int) -> int:
    """Where the batch that holds `offset` begins; the end when all lie below."""
    return next((at for at, end, _ in batches_of(data) if end > offset), len(data))


def complaint(topic: Topic, start: int, batches: bytes) -> str | None:
    """What is wrong with a topic of which `batches` from `start` are served; None when nothing is."""
    if start < topic.floor:
        return f"begins at {start}, deleted up to {topic.floor}"
    before = topic.batches
    kept = position_of(before, start)
    if topic.kind == "compacted":
        return _complaint_of_compacted(topic, batches)
    if not batches.startswith(before[kept:]):
        return f"{len(before) - kept} bytes from {start} on were served, now others ({len(batches)})"
    gone = position_of(before, topic.floor)
    if topic.kind == "shortened":
        if kept > gone and len(batches) < RETAINED_BYTES:
            return f"only {len(batches)} bytes remain of {len(before)}"
    elif start > topic.floor:
        return f"begins at {start} instead of {topic.floor}: {kept - gone} bytes are gone"
    return _complaint_of_acknowledged(topic, start, batches)


def _records(batches: bytes) -> dict[int, tuple[bytes | None, bytes | None]]:
    return {record.offset: (record.key, record.value) for record in decode_records(memoryview(batches))}


def _complaint_of_acknowledged(topic: Topic, start: int, batches: bytes) -> str | None:
    if topic.kind == "old format":
        missing = [
            offset for offset in topic.acknowledged if offset >= start and position_of(batches, offset) == len(batches)
        ]
        return f"acknowledged and gone: {missing[:5]}" if missing else None
    found = _records(batches)
    wrong = [offset for offset, record in topic.acknowledged.items() if offset >= start and found.get(offset) != record]
    return f"acknowledged and not there: {wrong[:5]} ({len(wrong)}; served from {start})" if wrong else None


def _complaint_of_compacted(topic: Topic, batches: bytes) -> str | None:
    found, before = _records(batches), _records(topic.batches)
    known = {**before, **topic.acknowledged}
    latest: dict[bytes | None, int] = {}
    for offset in sorted({**known, **found}):
        latest[(known.get(offset) or found[offset])[0]] = offset
    missing = [offset for offset in latest.values() if offset not in found and offset >= topic.floor]
    altered = [offset for offset in known if offset in found and found[offset] != known[offset]]
    return f"the last of their keys and gone: {missing}; altered: {altered[:5]}" if missing or altered else None
