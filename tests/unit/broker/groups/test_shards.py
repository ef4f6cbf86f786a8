"""Which partition of the topic of offsets a group belongs to: as Kafka computes it, or a takeover would lose groups."""

from __future__ import annotations

import pytest

from strandline.broker.groups.shards import java_hash, partition_of


@pytest.mark.parametrize(
    ("text", "found"),
    [("", 0), ("hello", 99162322), ("polygenelubricants", -(2**31)), ("\u00e9", 233), ("\U0001f600", 1772899)],
)
def test_a_hash_is_java_s_over_units_of_utf_16(text: str, found: int) -> None:
    assert java_hash(text) == found


@pytest.mark.parametrize(
    ("group", "partition"), [("", 0), ("hello", 22), ("polygenelubricants", 0), ("console-consumer-1", 24)]
)
def test_a_partition_is_the_rest_of_the_absolute_value(group: str, partition: int) -> None:
    assert partition_of(group, 50) == partition
