"""The records of `__consumer_offsets`: Kafka's bytes, round trips, every version, and what is not of the format."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.protocol.group_records import (
    CommittedOffset,
    GroupKey,
    GroupMember,
    GroupMetadata,
    InvalidGroupRecord,
    OffsetKey,
    group_key,
    group_value,
    offset_key,
    offset_value,
    read_group_value,
    read_key,
    read_offset_value,
)

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
texts = st.text(st.characters(codec="utf-8"), max_size=20)
committed_offsets = st.builds(CommittedOffset, int64, int32, texts, int64)
members = st.builds(
    GroupMember, texts, st.none() | texts, texts, texts, int32, int32, st.binary(max_size=20), st.binary(max_size=20)
)
groups = st.builds(
    GroupMetadata,
    texts,
    texts,
    int32,
    st.none() | texts,
    st.none() | texts,
    int64,
    st.lists(members, max_size=3),
)
MEMBER = GroupMember("m-1", None, "client", "/127.0.0.1", 300_000, 45_000, b"sub", b"ass")
GROUP = GroupMetadata("g", "consumer", 7, "range", "m-1", 1_600_000_000_000, [MEMBER])


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def blob(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def short(value: bytes | str) -> bytes:
    """A compact string or bytes of fewer than 127 bytes."""
    data = value.encode() if isinstance(value, str) else value
    return bytes([len(data) + 1]) + data


# --- what Kafka writes -----------------------------------------------------------------------------------------------


def test_keys_are_kafkas() -> None:
    assert offset_key("g", "topic", 3) == b"\0\1\0\1g\0\5topic\0\0\0\3"
    assert group_key("group") == b"\0\2\0\5group"
    assert read_key(b"\0\0" + offset_key("g", "t", 3)[2:]) == OffsetKey("g", "t", 3)


def test_a_commit_is_written_as_version_3_and_as_version_1_where_it_expires_by_itself() -> None:
    plain = CommittedOffset(5, 2, "note", 1000)
    assert offset_value(plain) == struct.pack(">hqi", 3, 5, 2) + text("note") + struct.pack(">q", 1000)
    expiring = CommittedOffset(5, 2, "note", 1000, 2000)
    assert offset_value(expiring) == struct.pack(">hq", 1, 5) + text("note") + struct.pack(">qq", 1000, 2000)
    assert read_offset_value(offset_value(expiring)) == CommittedOffset(5, -1, "note", 1000, 2000)


def test_a_group_is_written_as_version_3() -> None:
    assert group_value(GROUP) == b"".join(
        (
            struct.pack(">h", 3),
            text("consumer"),
            struct.pack(">i", 7),
            text("range"),
            text("m-1"),
            struct.pack(">qi", 1_600_000_000_000, 1),
            text("m-1"),
            b"\xff\xff",
            text("client"),
            text("/127.0.0.1"),
            struct.pack(">ii", 300_000, 45_000),
            blob(b"sub"),
            blob(b"ass"),
        )
    )


@pytest.mark.parametrize("version", [0, 2])
def test_commits_of_former_versions_are_read(version: int) -> None:
    data = struct.pack(">hq", version, 5) + text("") + struct.pack(">q", 1000)
    assert read_offset_value(data) == CommittedOffset(5, -1, "", 1000)


def test_a_flexible_commit_is_read_and_its_tagged_fields_are_skipped() -> None:
    topic_id = bytes(range(16))
    data = struct.pack(">hqi", 4, 5, 2) + short("note") + struct.pack(">q", 1000) + b"\1\0\x10" + topic_id
    assert read_offset_value(data) == CommittedOffset(5, 2, "note", 1000)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_groups_of_every_version_are_read(version: int) -> None:
    data = struct.pack(">h", version) + text("consumer") + struct.pack(">i", 7) + text("range") + b"\xff\xff"
    data += struct.pack(">q", 99) if version >= 2 else b""
    data += struct.pack(">i", 1) + text("m-1")
    data += text("static") if version >= 3 else b""
    data += text("client") + text("/127.0.0.1")
    data += struct.pack(">i", 300_000) if version >= 1 else b""
    data += struct.pack(">i", 45_000) + blob(b"sub") + blob(b"ass")
    assert read_group_value("g", data) == GroupMetadata(
        "g",
        "consumer",
        7,
        "range",
        None,
        99 if version >= 2 else -1,
        [
            GroupMember(
                "m-1",
                "static" if version >= 3 else None,
                "client",
                "/127.0.0.1",
                300_000 if version else 45_000,
                45_000,
                b"sub",
                b"ass",
            )
        ],
    )


def test_a_flexible_group_is_read() -> None:
    member = short("m-1") + b"\0" + short("client") + short("/127.0.0.1") + struct.pack(">ii", 300_000, 45_000)
    member += short(b"sub") + short(b"ass") + b"\0"
    data = struct.pack(">h", 4) + short("consumer") + struct.pack(">i", 7) + short("range") + short("m-1")
    data += struct.pack(">q", 1_600_000_000_000) + b"\2" + member + b"\1\x63\2ab"
    assert read_group_value("g", data) == GROUP


def test_kinds_that_are_not_known_are_skipped() -> None:
    assert [read_key(struct.pack(">h", version) + b"whatever") for version in (3, 11, 2**15 - 1)] == [None] * 3


# --- properties ------------------------------------------------------------------------------------------------------


@given(texts, texts, int32)
def test_keys_come_back(group: str, topic: str, partition: int) -> None:
    assert read_key(offset_key(group, topic, partition)) == OffsetKey(group, topic, partition)
    assert read_key(group_key(group)) == GroupKey(group)


@given(committed_offsets)
def test_commits_come_back(committed: CommittedOffset) -> None:
    assert read_offset_value(offset_value(committed)) == committed


@given(groups)
def test_groups_come_back(metadata: GroupMetadata) -> None:
    assert read_group_value(metadata.group, group_value(metadata)) == metadata


@given(texts, texts, committed_offsets, groups)
def test_what_is_cut_anywhere_is_one_typed_error(
    group: str, topic: str, committed: CommittedOffset, metadata: GroupMetadata
) -> None:
    for data, read in (
        (offset_key(group, topic, 1), read_key),
        (group_key(group), read_key),
        (offset_value(committed), read_offset_value),
        (group_value(metadata), lambda data: read_group_value(group, data)),
    ):
        for end in range(len(data)):
            with pytest.raises(InvalidGroupRecord):
                read(data[:end])


@given(st.integers(-1, 5), st.binary(max_size=100))
def test_garbage_is_read_or_one_typed_error(version: int, garbage: bytes) -> None:
    data = struct.pack(">h", version) + garbage
    for read in (read_key, read_offset_value, lambda data: read_group_value("g", data)):
        try:
            read(data)
        except InvalidGroupRecord:
            pass


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">h", 5) + bytes(40),
        struct.pack(">h", 3) + bytes(8) + text("") + text("") + bytes(8) + struct.pack(">i", 2**31 - 1) + bytes(64),
        struct.pack(">h", 4) + b"\xff\xff\xff\xff\x0f" + bytes(40),
        struct.pack(">h", 4) + b"\xff" * 10,
    ],
    ids=["unknown version", "members without end", "length of 2³²", "endless varint"],
)
def test_no_length_is_believed(data: bytes) -> None:
    with pytest.raises(InvalidGroupRecord):
        read_group_value("g", data)


def test_names_that_no_key_can_hold_are_refused() -> None:
    for write in (
        lambda: group_key("g" * 2**15),
        lambda: offset_key("g", "é" * 2**14, 0),
        lambda: offset_value(CommittedOffset(1, metadata="x" * 2**15)),
    ):
        with pytest.raises(InvalidGroupRecord):
            write()
    assert len(group_key("g" * (2**15 - 1))) == 2**15 + 3
