"""Which partition a row goes to."""

from __future__ import annotations

from zlib import crc32

import pyarrow as pa
import pytest
from hypothesis import given as property_of
from hypothesis import strategies as st

from strandline.client.accumulator import ToSend
from strandline.client.partitioner import murmur2, partition_for_key
from strandline.protocol.types import NO_PARTITION, TopicPartition
from strandline.spark_connector.errors import WriteFailed
from strandline.spark_connector.writing.placing import FEW, Room, hashes_of, placed
from support.sink_rows import sink_rows

COUNTS = {"t": 3, "u": 4}


def room_of(topic: str) -> Room:
    """One more partition than rows are placed among."""
    return Room(COUNTS[topic] + 1, placed_among=COUNTS[topic])


@property_of(st.lists(st.integers(0, 13).flatmap(lambda size: st.binary(min_size=size, max_size=size)), max_size=120))
def test_keys_hashed_together_have_the_hash_that_each_has_by_itself(keys: list[bytes]) -> None:
    together = keys + [bytes([number, 200, 255 - number, 3, number]) for number in range(FEW + 1)]
    array = pa.array([b"", *together], pa.binary())[1:]
    assert hashes_of(array).tolist() == [murmur2(key) & 0x7FFFFFFF for key in together]


ROWS = st.lists(
    st.tuples(
        st.sampled_from([None, b"", b"ann", b"bob"]) | st.binary(max_size=9),
        st.sampled_from([None, b"", b"x"]) | st.binary(max_size=9),
        st.sampled_from(["t", "u"]),
        st.none() | st.integers(0, 3),
    ),
    max_size=60,
)


@property_of(ROWS, st.booleans(), st.booleans())
def test_rows_go_where_they_say_or_by_key_as_kafka_does_or_by_value(
    rows: list[tuple[bytes | None, bytes | None, str, int | None]], names_partitions: bool, keyless_are_placed: bool
) -> None:
    expected: dict[TopicPartition, list[ToSend]] = {}
    for key, value, topic, partition in rows:
        count = COUNTS[topic]
        if names_partitions and partition is not None:
            number = partition
        elif key is not None:
            number = partition_for_key(key, count)
        else:
            number = crc32(value or b"") % count if keyless_are_placed else NO_PARTITION
        expected.setdefault(TopicPartition(topic, number), []).append((key, value))
    topics, partitions = [row[2] for row in rows], [row[3] for row in rows] if names_partitions else None
    given = sink_rows(topics, [row[:2] for row in rows], partitions)
    found = placed(given, room_of, keyless_are_placed=keyless_are_placed)
    assert {at: own.records() for at, own in found.items()} == expected


def test_a_row_for_a_partition_that_does_not_exist_is_refused() -> None:
    with pytest.raises(WriteFailed, match=r"topic 't' has no partition 7, only 4 of them"):
        placed(sink_rows("t", [(None, b"x"), (None, b"y")], [0, 7]), room_of)
