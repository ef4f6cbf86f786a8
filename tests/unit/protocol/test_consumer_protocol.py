"""What consumers tell each other: Kafka's bytes, round trips, every version, and what is not of the format."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.protocol.consumer_protocol import (
    Assignment,
    InvalidConsumerData,
    Subscription,
    decode_assignment,
    decode_cooperative_data,
    decode_sticky_data,
    decode_subscription,
    encode_assignment,
    encode_cooperative_data,
    encode_sticky_data,
    encode_subscription,
    subscribed_topics,
)
from strandline.protocol.types import TopicPartition

int32 = st.integers(-(2**31), 2**31 - 1)
texts = st.text(st.characters(codec="utf-8"), max_size=20)
user_data = st.none() | st.binary(max_size=20)
partitions = st.lists(st.builds(TopicPartition, texts, int32), max_size=6).map(sorted)
subscriptions = st.builds(Subscription, st.lists(texts, max_size=4), user_data, partitions, int32, st.none() | texts)
FULL = Subscription(["a", "bc"], b"data", [TopicPartition("a", 1), TopicPartition("a", 3)], 7, "rack")

OWNED = b"\0\0\0\1" + b"\0\1a" + b"\0\0\0\2" + b"\0\0\0\1\0\0\0\3"
BODY = b"\0\0\0\2" + b"\0\1a" + b"\0\2bc" + b"\0\0\0\4data"


@pytest.mark.parametrize(
    ("version", "data", "read"),
    [
        (0, b"\0\0" + BODY, Subscription(FULL.topics, b"data")),
        (1, b"\0\1" + BODY + OWNED, Subscription(FULL.topics, b"data", FULL.owned_partitions)),
        (2, b"\0\2" + BODY + OWNED + b"\0\0\0\7", Subscription(FULL.topics, b"data", FULL.owned_partitions, 7)),
        (3, b"\0\3" + BODY + OWNED + b"\0\0\0\7" + b"\0\4rack", FULL),
    ],
)
def test_each_version_of_a_subscription_is_kafkas(version: int, data: bytes, read: Subscription) -> None:
    assert encode_subscription(FULL, version) == data
    assert decode_subscription(data) == Subscription(
        read.topics, read.user_data, list(read.owned_partitions), read.generation_id, read.rack_id
    )


def test_an_assignment_is_kafkas() -> None:
    assert encode_assignment(Assignment(FULL.owned_partitions)) == b"\0\3" + OWNED + b"\xff\xff\xff\xff"
    assert encode_assignment(Assignment([], b"d"), 0) == b"\0\0" + b"\0\0\0\0" + b"\0\0\0\1d"


def test_what_the_sticky_assignors_say_is_kafkas() -> None:
    assert encode_sticky_data(FULL.owned_partitions, 7) == OWNED + b"\0\0\0\7"
    assert decode_sticky_data(OWNED) == (FULL.owned_partitions, -1)  # version 0 of very old clients
    assert encode_cooperative_data(7) == b"\0\0\0\7"


@given(subscriptions)
def test_a_subscription_is_read_as_it_was_written(subscription: Subscription) -> None:
    assert decode_subscription(encode_subscription(subscription)) == subscription
    assert subscribed_topics(encode_subscription(subscription)) == frozenset(subscription.topics)


@given(partitions, user_data, int32)
def test_an_assignment_and_user_data_are_read_as_they_were_written(owned, data, generation) -> None:
    assert decode_assignment(encode_assignment(Assignment(owned, data))) == Assignment(owned, data)
    assert decode_sticky_data(encode_sticky_data(owned, generation)) == (owned, generation)
    assert decode_cooperative_data(encode_cooperative_data(generation)) == generation


def test_a_later_version_and_what_stands_behind_the_end_are_read_as_far_as_they_are_known() -> None:
    data = encode_subscription(FULL)
    assert decode_subscription(b"\0\x09" + data[2:] + b"more") == decode_subscription(data)


def test_a_subscription_that_is_cut_short_is_refused_at_every_byte() -> None:
    data = encode_subscription(FULL)
    for end in range(len(data)):
        with pytest.raises(InvalidConsumerData):
            decode_subscription(data[:end])
    data = encode_assignment(Assignment(FULL.owned_partitions, b"data"))
    for end in range(len(data)):
        with pytest.raises(InvalidConsumerData):
            decode_assignment(data[:end])
    for end in range(len(OWNED)):
        with pytest.raises(InvalidConsumerData):
            decode_sticky_data(OWNED[:end])


@pytest.mark.parametrize("length", [-2, 5, 2**31 - 1])
def test_a_length_that_cannot_be_is_refused(length: int) -> None:
    number = struct.pack(">i", length)
    for data in (b"\0\3" + number, b"\0\3" + b"\0\0\0\0" + number, b"\0\1\0\0\0\0\xff\xff\xff\xff" + number):
        with pytest.raises(InvalidConsumerData):
            decode_subscription(data)
    with pytest.raises(InvalidConsumerData):
        decode_assignment(b"\0\0\0\0\0\1\0\1a" + number)


@pytest.mark.parametrize("data", [b"\xff\xff" + BODY, b"\0\3\0\0\0\1\0\1\xff", b"\0\3\0\0\0\1\xff\xff"])
def test_what_is_no_subscription_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidConsumerData):
        decode_subscription(data)
    assert subscribed_topics(data) is None


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (decode_subscription, decode_assignment, decode_sticky_data, decode_cooperative_data):
        try:
            read(data)
        except InvalidConsumerData:
            continue


def test_topics_are_read_where_the_rest_is_not_of_the_version_that_is_told() -> None:
    assert subscribed_topics(b"\0\1" + BODY) == {"a", "bc"}


def test_what_does_not_fit_is_not_written() -> None:
    with pytest.raises(InvalidConsumerData):
        encode_subscription(Subscription(["t" * 2**15]))
    with pytest.raises(InvalidConsumerData):
        encode_assignment(Assignment([TopicPartition("t", 2**31)]))
