"""What a program gives to a consumer is checked there; no broker is asked for the partition of a float."""

from __future__ import annotations

import re
from typing import Any

import numpy
import pytest
import trio

from strandline.client import TrioConsumer
from strandline.client.given import given_int, given_partition
from strandline.client.groups.offsets import OffsetAndMetadata, checked_offsets
from strandline.protocol.types import TopicPartition
from unit.client.fake_broker import FakeCluster

T0 = TopicPartition("t", 0)


@pytest.mark.parametrize("given", [T0, ("t", 0), ("t", numpy.int64(0))])
def test_a_partition_is_a_pair_of_a_name_and_a_number(given: object) -> None:
    found = given_partition(given)
    assert (found, type(found), type(found.partition)) == (T0, TopicPartition, int)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("t", "'t' is no partition: give TopicPartition(topic, number), and several in a list"),
        ([T0], "partitions are given here one by one, not as a list: *partitions"),
        (("t", "0"), "the partition of topic 't' is '0' (str): give an int"),
        (0, "0 is no partition: give TopicPartition(topic, number)"),
    ],
)
def test_what_is_none_is_refused_in_words(given: object, said: str) -> None:
    with pytest.raises(TypeError, match=f"^{re.escape(said)}$"):
        given_partition(given)


def test_integers_of_numpy_are_integers_and_floats_are_none() -> None:
    wrong: Any = 7.0
    assert type(given_int(numpy.int64(7), "the offset")) is int
    with pytest.raises(TypeError, match=r"^the offset is 7\.0 \(float\): give an int$"):
        given_int(wrong, "the offset")


def test_offsets_to_commit_are_integers() -> None:
    given: Any = {T0: numpy.int64(3)}
    assert checked_offsets(given) == {T0: OffsetAndMetadata(3)}
    given = {T0: 3.0}
    with pytest.raises(TypeError, match=r"the offset of t-0 is 3\.0"):
        checked_offsets(given)


async def test_a_consumer_checks_what_it_is_given(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    wrong: Any = 3.0
    topic: Any = "t"
    listed: Any = [T0]
    one: Any = T0
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with TrioConsumer(cluster.bootstrap, environment=cluster.environment()) as client:
            await client.assign([T0])
            for call in (
                lambda: client.seek(T0, wrong),
                lambda: client.pause(listed),
                lambda: client.seek_to_beginning(topic),
            ):
                with pytest.raises(TypeError, match="give"):
                    call()
            with pytest.raises(TypeError, match=r"^the time for .*, in ms, is 3\.0"):
                await client.offsets_for_times({T0: wrong})
            with pytest.raises(TypeError, match="'t' is no partition"):
                await client.end_offsets(one)
        nursery.cancel_scope.cancel()
