"""The records of `__consumer_offsets`: what a group has committed, and who is in it. In Kafka's own format.

Key and value begin with an int16 version, the key's says what the record is about; a value of null (a tombstone)
removes it. All integers are big endian; a string is an int16 length and UTF-8, bytes are an int32 length and bytes, an
array is an int32 count and elements; a length of −1 is null where that is allowed (`?`).
```
key 0, 1   string group | string topic | int32 partition
key 2      string group
key 3 …    kinds that are not known here (Kafka 4 keeps groups of other protocols in them): skipped

value of key 0, 1, by version (a committed offset)
  0, 2     int64 offset |                     string metadata | int64 commit timestamp, ms
  1        int64 offset |                     string metadata | int64 commit timestamp | int64 expire timestamp, −1 none
  3        int64 offset | int32 leader epoch | string metadata | int64 commit timestamp
  4        as 3, flexible

value of key 2, by version (a group, as it was when its generation began or its last member left)
  0 …      string protocol type | int32 generation | string? protocol | string? leader |
  2 …        int64 time since which it is in its state, ms, −1 unknown |
  0 …        array of members: string member id |
  3 …          string? group instance id |
  0 …          string client id | string client host |
  1 …          int32 rebalance timeout, ms (before: as the session timeout) |
  0 …          int32 session timeout, ms | bytes subscription | bytes assignment
  4        as 3, flexible
```
Flexible (KIP-482): lengths and counts are unsigned varints of one more than the length, 0 is null; each struct ends
with tagged fields (a count, then tag, size and bytes of each), which are skipped. Written is what Kafka 3.9 writes: key
1, value 3, or value 1 where an expire timestamp is set (it keeps the leader epoch out); key 2, value 3.

Bytes behind the last field are ignored, as Kafka ignores them. Source: Kafka's OffsetCommitKey.json,
OffsetCommitValue.json, GroupMetadataKey.json, GroupMetadataValue.json; KIP-915 (which versions may follow).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from strandline.protocol.errors import RemoteProtocolError
from strandline.protocol.kafka.primitives import read_uvarint
from strandline.protocol.types import NO_EPOCH

NO_TIMESTAMP_MS = -1

_OFFSET_KEY, _GROUP_KEY = 1, 2
_PLAIN, _EXPIRING, _FIRST_FLEXIBLE = 3, 1, 4
"""Versions of values."""
_INT16, _INT32, _INT64 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_OFFSET_HEAD = struct.Struct(">hqih")
_BARE_OFFSET = struct.Struct(">hqihq")
"""A value of version 3 without metadata."""
_MAX_STRING_BYTES = 2**15 - 1
_LEAST_MEMBER_BYTES = 15

T = TypeVar("T")


class InvalidGroupRecord(Exception):
    """A key or value that is not of this format, or that cannot be written in it. The text says why."""


class OffsetKey(NamedTuple):
    """The record is about what a group has committed of a partition."""

    group: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """The record is about a group itself."""

    group: str


class CommittedOffset(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a group goes on in a partition. `leader_epoch` −1: not known. `expire_timestamp_ms` −1: none, it stays as
    long as KIP-211 says; only commits of old clients have one."""

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    commit_timestamp_ms: int = NO_TIMESTAMP_MS
    expire_timestamp_ms: int = NO_TIMESTAMP_MS


class GroupMember(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`subscription`: what it said with the protocol that was chosen; both are the clients' own format."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupMetadata(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One generation of a group; without members it is empty. `protocol`, `leader`: None where there is none.
    `current_state_timestamp_ms`: since when it is in its state, −1 not known."""

    group: str
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp_ms: int
    members: list[GroupMember]


def can_hold(text: str) -> bool:
    """Whether a string of a record can be that long."""
    return len(text) <= _MAX_STRING_BYTES // 4 or len(text.encode(errors="surrogatepass")) <= _MAX_STRING_BYTES


# --- writing ---------------------------------------------------------------------------------------------------------


def offset_key(group: str, topic: str, partition: int) -> bytes:
    """InvalidGroupRecord: a name is longer than 32,767 bytes; so for all that write."""
    return b"".join((_INT16.pack(_OFFSET_KEY), _string(group), _string(topic), _INT32.pack(partition)))


def group_key(group: str) -> bytes:
    return _INT16.pack(_GROUP_KEY) + _string(group)


def offset_value(committed: CommittedOffset) -> bytes:
    metadata = committed.metadata.encode()
    if len(metadata) > _MAX_STRING_BYTES:
        raise InvalidGroupRecord(f"{len(metadata)} bytes of metadata are longer than a string may be")
    timestamp = _INT64.pack(committed.commit_timestamp_ms)
    if committed.expire_timestamp_ms != NO_TIMESTAMP_MS:
        head = _INT16.pack(_EXPIRING) + _INT64.pack(committed.offset) + _INT16.pack(len(metadata))
        return b"".join((head, metadata, timestamp, _INT64.pack(committed.expire_timestamp_ms)))
    head = _OFFSET_HEAD.pack(_PLAIN, committed.offset, committed.leader_epoch, len(metadata))
    return b"".join((head, metadata, timestamp))


def group_value(metadata: GroupMetadata) -> bytes:
    pieces = [
        _INT16.pack(_PLAIN),
        _string(metadata.protocol_type),
        _INT32.pack(metadata.generation),
        _nullable_string(metadata.protocol),
        _nullable_string(metadata.leader),
        _INT64.pack(metadata.current_state_timestamp_ms),
        _INT32.pack(len(metadata.members)),
    ]
    for member in metadata.members:
        pieces += (
            _string(member.member_id),
            _nullable_string(member.group_instance_id),
            _string(member.client_id),
            _string(member.client_host),
            _INT32.pack(member.rebalance_timeout_ms),
            _INT32.pack(member.session_timeout_ms),
            _INT32.pack(len(member.subscription)),
            member.subscription,
            _INT32.pack(len(member.assignment)),
            member.assignment,
        )
    return b"".join(pieces)


def _string(text: str) -> bytes:
    data = text.encode()
    if len(data) > _MAX_STRING_BYTES:
        raise InvalidGroupRecord(f"{text[:50]!r}… has {len(data)} bytes, a string at most {_MAX_STRING_BYTES}")
    return _INT16.pack(len(data)) + data


def _nullable_string(text: str | None) -> bytes:
    return _INT16.pack(-1) if text is None else _string(text)


# --- reading ---------------------------------------------------------------------------------------------------------


def read_key(data: bytes) -> OffsetKey | GroupKey | None:
    """What a record is about; None: a kind that is not known here. InvalidGroupRecord."""
    return _read(data, _key)


def read_offset_value(data: bytes) -> CommittedOffset:
    """InvalidGroupRecord; so for a version that is not known."""
    if len(data) == _BARE_OFFSET.size:  # nearly all are: a quarter of the time
        version, offset, leader_epoch, length, commit_timestamp_ms = _BARE_OFFSET.unpack(data)
        if version == _PLAIN and length == 0:
            return CommittedOffset(offset, leader_epoch, "", commit_timestamp_ms)
    return _read(data, _offset_value)


def read_group_value(group: str, data: bytes) -> GroupMetadata:
    """`group`: of the key. InvalidGroupRecord; so for a version that is not known."""
    return _read(data, partial(_group_value, group))


def _read(data: bytes, read: Callable[[bytes], T]) -> T:
    try:
        return read(data)
    except (struct.error, IndexError):
        raise InvalidGroupRecord(f"it ends after {len(data)} bytes, inside of a field") from None
    except UnicodeDecodeError as error:
        raise InvalidGroupRecord(f"a string is not UTF-8: {error.reason}") from None
    except RemoteProtocolError as error:
        raise InvalidGroupRecord(str(error)) from None


def _key(data: bytes) -> OffsetKey | GroupKey | None:
    (version,) = _INT16.unpack_from(data)
    if version < 0:
        raise InvalidGroupRecord(f"a key's version is {version}")
    if version > _GROUP_KEY:
        return None
    group, position = _text(data, _INT16.size)
    if version == _GROUP_KEY:
        return GroupKey(group)
    topic, position = _text(data, position)
    return OffsetKey(group, topic, _INT32.unpack_from(data, position)[0])


def _text(data: bytes, position: int) -> tuple[str, int]:
    """The string at `position`, and where it ends."""
    (length,) = _INT16.unpack_from(data, position)
    start = position + _INT16.size
    end = start + length
    if length < 0 or end > len(data):
        raise InvalidGroupRecord(f"a length of {length} at byte {position} of {len(data)}")
    return data[start:end].decode(), end


def _offset_value(data: bytes) -> CommittedOffset:
    reader = _Reader(data)
    version = reader.version()
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else NO_EPOCH
    metadata = reader.string()
    commit_timestamp_ms = reader.int64()
    expire_timestamp_ms = reader.int64() if version == _EXPIRING else NO_TIMESTAMP_MS
    reader.end_struct()
    return CommittedOffset(offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms)


def _group_value(group: str, data: bytes) -> GroupMetadata:
    reader = _Reader(data)
    version = reader.version()
    protocol_type = reader.string()
    generation = reader.int32()
    protocol, leader = reader.nullable_string(), reader.nullable_string()
    since_ms = reader.int64() if version >= 2 else NO_TIMESTAMP_MS
    members = [_member(reader, version) for _ in range(reader.count(_LEAST_MEMBER_BYTES))]
    reader.end_struct()
    return GroupMetadata(group, protocol_type, generation, protocol, leader, since_ms, members)


def _member(reader: _Reader, version: int) -> GroupMember:
    member_id = reader.string()
    group_instance_id = reader.nullable_string() if version >= 3 else None
    client_id, client_host = reader.string(), reader.string()
    rebalance_timeout_ms = reader.int32() if version >= 1 else NO_TIMESTAMP_MS
    session_timeout_ms = reader.int32()
    if version == 0:
        rebalance_timeout_ms = session_timeout_ms
    subscription, assignment = reader.blob(), reader.blob()
    reader.end_struct()
    return GroupMember(
        member_id,
        group_instance_id,
        client_id,
        client_host,
        rebalance_timeout_ms,
        session_timeout_ms,
        subscription,
        assignment,
    )


class _Reader:
    """Takes one field of a value after the other. struct.error, IndexError: the data ends before; UnicodeDecodeError;
    InvalidGroupRecord, RemoteProtocolError: a length or count that cannot be."""

    __slots__ = ("_data", "_is_flexible", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0
        self._is_flexible = False

    def version(self) -> int:
        """Of the value: its first field."""
        version = self.int16()
        if not 0 <= version <= _FIRST_FLEXIBLE:
            raise InvalidGroupRecord(f"version {version} of the value is not known here")
        self._is_flexible = version >= _FIRST_FLEXIBLE
        return version

    def int16(self) -> int:
        (value,) = _INT16.unpack_from(self._data, self._position)
        self._position += 2
        return int(value)

    def int32(self) -> int:
        (value,) = _INT32.unpack_from(self._data, self._position)
        self._position += 4
        return int(value)

    def int64(self) -> int:
        (value,) = _INT64.unpack_from(self._data, self._position)
        self._position += 8
        return int(value)

    def string(self) -> str:
        return self._take(self._varint() - 1 if self._is_flexible else self.int16()).decode()

    def nullable_string(self) -> str | None:
        length = self._varint() - 1 if self._is_flexible else self.int16()
        return None if length == -1 else self._take(length).decode()

    def blob(self) -> bytes:
        return self._take(self._varint() - 1 if self._is_flexible else self.int32())

    def count(self, least_bytes: int) -> int:
        """Of elements that have so many bytes at least."""
        count = self._varint() - 1 if self._is_flexible else self.int32()
        if not 0 <= count <= (len(self._data) - self._position) // least_bytes:
            raise InvalidGroupRecord(f"{count} elements do not fit {len(self._data)} bytes")
        return count

    def end_struct(self) -> None:
        """Skip tagged fields."""
        if self._is_flexible:
            for _ in range(self._varint()):
                self._varint()
                self._take(self._varint())

    def _take(self, length: int) -> bytes:
        start, end = self._position, self._position + length
        if length < 0 or end > len(self._data):
            raise InvalidGroupRecord(f"a length of {length} at byte {start} of {len(self._data)}")
        self._position = end
        return self._data[start:end]

    def _varint(self) -> int:
        value, self._position = read_uvarint(self._data, self._position)
        return value
