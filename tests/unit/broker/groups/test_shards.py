"""Which partition of the topic of offsets a group belongs to: as Kafka computes it, or a takeover would lose groups."""

from __future__ import annotations

import subprocess
import sys

import pytest

from strandline.broker.groups import shards
from strandline.broker.groups.shards import (
    CACHED_CHARACTERS,
    MAX_ID_BYTES,
    cost_of_finding,
    java_hash,
    may_be_a_group,
    partition_of,
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", 0),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
        ("\u00e9", 233),
        ("\U0001f600", 1772899),
        ("a" * 1000, 904019584),
    ],
)
def test_a_hash_is_java_s_over_units_of_utf_16(text: str, found: int) -> None:
    assert java_hash(text) == found


@pytest.mark.parametrize(
    ("group", "partition"), [("", 0), ("hello", 22), ("polygenelubricants", 0), ("console-consumer-1", 24)]
)
def test_a_partition_is_the_rest_of_the_absolute_value(group: str, partition: int) -> None:
    assert partition_of(group, 50) == partition


def test_a_long_name_is_hashed_as_a_short_one_and_not_kept() -> None:
    before = shards._cached_hash.cache_info().misses
    long = "b" * CACHED_CHARACTERS
    assert java_hash(long + "c") == (31 * java_hash(long) + ord("c") + 2**31) % 2**32 - 2**31
    assert shards._cached_hash.cache_info().misses == before + 1


@pytest.mark.parametrize(
    ("name", "may_be"),
    [
        ("a" * MAX_ID_BYTES, True),
        ("a" * (MAX_ID_BYTES + 1), False),
        ("\u20ac" * 10_922, True),
        ("\u20ac" * 10_923, False),
    ],
)
def test_a_name_is_one_that_records_can_hold(name: str, may_be: bool) -> None:
    assert may_be_a_group(name) is may_be


def test_a_long_name_costs_as_much_as_many_short_ones() -> None:
    assert cost_of_finding("g") == 1
    assert cost_of_finding("g" * 12_800) == 101
    assert cost_of_finding("g" * 10**8) == cost_of_finding("g" * MAX_ID_BYTES), "it is not hashed at all"


def test_a_name_is_hashed_and_a_line_escaped_without_a_descriptor() -> None:
    """What Python imports when it is first asked for cannot be had then."""
    program = (
        "import resource; from strandline.broker.groups.shards import java_hash; "
        "from strandline.runtime.logging import escape; "
        "resource.setrlimit(resource.RLIMIT_NOFILE, (0, resource.getrlimit(resource.RLIMIT_NOFILE)[1])); "
        "print(java_hash('group'), escape('a\\n'))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("98629247 a\\n\n", "")
