"""Produce written by hand says what Kafka's schemas say, in every version, and believes no length."""

from __future__ import annotations

import contextlib
import datetime
import struct
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from strandline.protocol.errors import LocalProtocolError, RemoteProtocolError
from strandline.protocol.kafka.produce import encode_produce_response, read_produce
from strandline.protocol.messages import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from strandline.protocol.messages.base import MAX_NAMED
from support import kio_wire
from support.kio_wire import INT16, INT32, INT64, TEXT

VERSIONS = range(12)
KIOS = range(3, 12)
PER_VERSION = settings(max_examples=40)
"""Most versions differ little from the one before."""
FIRST_FLEXIBLE = 9

RECORDS = st.none() | st.binary(max_size=40) | st.sampled_from([bytes(126), bytes(127), b"r" * 16382, b"r" * 16383])
PARTITIONS = st.lists(st.tuples(INT32, RECORDS), max_size=3)
TOPICS = st.lists(st.tuples(TEXT, PARTITIONS), max_size=3) | st.tuples(
    st.tuples(TEXT, st.tuples(st.tuples(INT32, RECORDS)))
)
"""The second: one topic and one partition, the usual request."""


def kios_body(version: int, acks: int, timeout_ms: int, topics: Any, transactional_id: str | None) -> bytes:
    kio = kio_wire.module("produce", version, "request")
    request = kio.ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout=kio_wire.milliseconds(timeout_ms),
        topic_data=tuple(
            kio.TopicProduceData(
                name=name,
                partition_data=tuple(
                    kio.PartitionProduceData(index=index, records=records) for index, records in partitions
                ),
            )
            for name, partitions in topics
        ),
    )
    return kio_wire.written(request)


def legacy_body(acks: int, timeout_ms: int, topics: Any) -> bytes:
    """Of versions 0 to 2, which kio does not have; 3 to 8 begin with a transactional id and go on like that."""
    body = struct.pack(">hii", acks, timeout_ms, len(topics))
    for name, partitions in topics:
        raw = name.encode()
        body += struct.pack(">h", len(raw)) + raw + struct.pack(">i", len(partitions))
        for index, records in partitions:
            body += struct.pack(">ii", index, -1 if records is None else len(records)) + (records or b"")
    return body


def body_of(version: int, acks: int, timeout_ms: int, topics: Any, transactional_id: str | None = None) -> bytes:
    if version < 3:
        return legacy_body(acks, timeout_ms, topics)
    return kios_body(version, acks, timeout_ms, topics, transactional_id)


def bodies(version: int) -> st.SearchStrategy[bytes]:
    return st.builds(body_of, st.just(version), INT16, INT32, TOPICS, st.none() | TEXT)


def read(version: int, body: bytes) -> tuple[ProduceRequest, list[bytes | None]]:
    request, records = read_produce(version, memoryview(body))
    return request, [None if each is None else bytes(each) for each in records]


@pytest.mark.parametrize("version", VERSIONS)
@PER_VERSION
@given(acks=INT16, timeout_ms=INT32, topics=TOPICS, transactional_id=st.none() | TEXT)
@example(1, 30_000, [("t", [(0, b"abc")])], None)
@example(1, 30_000, [("t", [(0, b"abc")])], "")
def test_a_request_is_read_as_it_was_written(version, acks, timeout_ms, topics, transactional_id) -> None:
    request, records = read(version, body_of(version, acks, timeout_ms, topics, transactional_id))
    named = [
        TopicProduceData(
            name, [PartitionProduceData(index, -1 if data is None else len(data)) for index, data in partitions]
        )
        for name, partitions in topics
    ]
    assert request == ProduceRequest(acks, timeout_ms, named, transactional_id if version >= 3 else None)
    assert records == [data for _, partitions in topics for _, data in partitions]


@given(acks=INT16, timeout_ms=INT32, topics=TOPICS)
def test_the_bodies_of_old_versions_differ_by_the_transactional_id(acks, timeout_ms, topics) -> None:
    assert kios_body(3, acks, timeout_ms, topics, None) == b"\xff\xff" + legacy_body(acks, timeout_ms, topics)


@pytest.mark.parametrize("version", VERSIONS)
def test_records_are_not_copied(version) -> None:
    topics = [[("t", [(0, b"abc")])], [("t", [(0, b"abc"), (1, b"de")])]]
    for each in topics:
        body = bytearray(body_of(version, 1, 5, each))
        _, records = read_produce(version, memoryview(body))
        place = bytes(body).index(b"abc")
        body[place : place + 3] = b"xyz"
        assert bytes(records[0]) == b"xyz"


@pytest.mark.parametrize("version", KIOS)
@PER_VERSION
@given(data=st.data())
def test_what_is_read_of_a_damaged_body_is_what_stands_there(version, data) -> None:
    body = data.draw(kio_wire.damaged(bodies(version)) | st.binary(max_size=60))
    try:
        request, records = read(version, body)
    except RemoteProtocolError as error:
        assert "\n" not in str(error)
        return
    try:
        entity = kio_wire.read(kio_wire.module("produce", version, "request").ProduceRequest, body)
    except kio_wire.KIO_ERRORS:
        assume(False)
    assert request.topic_data == [
        TopicProduceData(
            topic.name,
            [
                PartitionProduceData(part.index, -1 if part.records is None else len(part.records))
                for part in topic.partition_data
            ],
        )
        for topic in entity.topic_data
    ]
    assert (request.acks, request.transactional_id) == (entity.acks, entity.transactional_id)
    assert records == [part.records for topic in entity.topic_data for part in topic.partition_data]


SAMPLES = {
    "one partition": [("topic", [(3, b"records")])],
    "null records": [("topic", [(3, None)])],
    "empty records": [("topic", [(3, b"")])],
    "several": [("a", [(0, b"x" * 200), (1, None)]), ("b", [(2, b"y")])],
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("transactional_id", [None, "id"])
def test_a_body_that_is_cut_off_anywhere_is_refused(version, sample, transactional_id) -> None:
    body = body_of(version, -1, 1000, SAMPLES[sample], transactional_id)
    read(version, body)
    for end in range(len(body)):
        with pytest.raises(RemoteProtocolError):
            read(version, body[:end])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_body_that_goes_on_is_refused(version) -> None:
    for sample in SAMPLES.values():
        with pytest.raises(RemoteProtocolError):
            read(version, body_of(version, -1, 1000, sample) + b"\x00")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("sample", SAMPLES)
def test_no_length_is_believed_that_is_not_there(version, sample) -> None:
    for body in kio_wire.with_odd_lengths(body_of(version, -1, 1000, SAMPLES[sample])):
        with kio_wire.memory_within(50_000), contextlib.suppress(RemoteProtocolError):
            _, records = read_produce(version, memoryview(body))
            assert sum(len(each) for each in records if each is not None) <= len(body)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_names_no_more_than_a_broker_should_lead(version) -> None:
    def topics(partitions: int) -> list[Any]:
        half = partitions // 2
        return [("a", [(0, b"")] * half), ("b", [(0, b"")] * (partitions - half))]

    request, _ = read(version, body_of(version, 1, 0, topics(MAX_NAMED)))
    assert sum(len(topic.partition_data) for topic in request.topic_data) == MAX_NAMED
    with pytest.raises(RemoteProtocolError, match="may be named"):
        read(version, body_of(version, 1, 0, topics(MAX_NAMED + 1)))
    with pytest.raises(RemoteProtocolError, match="may be named"):
        read(version, body_of(version, 1, 0, [("t", [])] * (MAX_NAMED + 1)))


@pytest.mark.parametrize("version", range(FIRST_FLEXIBLE, 12))
def test_tagged_fields_that_nobody_knows_are_left_out(version) -> None:
    body = body_of(version, 1, 0, [("t", [(0, b"abc")])])
    assert body.endswith(b"abc\x00\x00\x00")
    tagged = body[:-3] + b"\x02\x05\x02zz\x06\x00" + b"\x01\x07\x01z" + b"\x01\x81\x01\x00"
    assert read(version, tagged) == read(version, body)
    with pytest.raises(RemoteProtocolError, match="tagged fields"):
        read(version, body[:-3] + b"\x11" + bytes(2 * 17) + b"\x00\x00")
    with pytest.raises(RemoteProtocolError, match="tagged field of 99 bytes"):
        read(version, body[:-3] + b"\x01\x05\x63" + b"\x00\x00")


def test_records_of_megabytes_are_read_as_any() -> None:
    for size in (2**21 - 2, 2**21 - 1, 2**21 + 5):
        _, [records] = read_produce(11, memoryview(body_of(11, 1, 0, [("t", [(0, bytes(size))])])))
        assert len(records) == size


def test_a_length_that_goes_on_for_a_fourth_byte_is_not_taken_for_one_of_three() -> None:
    body = body_of(11, 1, 0, [("t", [(0, None)])])
    assert body.endswith(b"\x00\x00\x00\x00")
    with pytest.raises(RemoteProtocolError):
        read(11, body[:-4] + b"\x80\x80\x80" + bytes(2**21 - 1) + b"\x00\x00\x00")


# --- the answer --------------------------------------------------------------------------------------------------

OUTCOMES = st.builds(
    PartitionProduceResponse,
    index=INT32,
    error_code=st.sampled_from([0, 0, 2, 6, 87]),
    base_offset=INT64,
    log_append_time_ms=st.integers(-1, 2**41),
    log_start_offset=INT64,
    error_message=st.none() | TEXT,
    current_leader_id=st.integers(-1, 2**31 - 1),
    current_leader_epoch=INT32,
    record_errors=st.lists(st.builds(BatchIndexAndErrorMessage, INT32, st.none() | TEXT), max_size=3),
)
RESPONSES = st.builds(
    ProduceResponse,
    st.lists(st.builds(TopicProduceResponse, TEXT, st.lists(OUTCOMES, max_size=3)), max_size=3),
    st.integers(0, 2**31 - 1),
)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def seen_by_kio(version: int, part: Any) -> dict[str, Any]:
    seen = {"index": part.index, "error_code": part.error_code, "base_offset": part.base_offset}
    time = part.log_append_time
    seen["log_append_time_ms"] = -1 if time is None else kio_wire.to_milliseconds(time - EPOCH)
    if version >= 5:
        seen["log_start_offset"] = part.log_start_offset
    if version >= 8:
        seen["error_message"] = part.error_message
        seen["record_errors"] = [
            BatchIndexAndErrorMessage(each.batch_index, each.batch_index_error_message) for each in part.record_errors
        ]
    if version >= 10 and part.current_leader.leader_id != -1:
        seen["current_leader_id"] = part.current_leader.leader_id
        seen["current_leader_epoch"] = part.current_leader.leader_epoch
    return seen


def expected_of(version: int, part: PartitionProduceResponse) -> dict[str, Any]:
    names = ["index", "error_code", "base_offset", "log_append_time_ms"]
    names += ["log_start_offset"] if version >= 5 else []
    names += ["error_message", "record_errors"] if version >= 8 else []
    if version >= 10 and part.error_code and part.current_leader_id != -1:
        names += ["current_leader_id", "current_leader_epoch"]
    fields = {name: getattr(part, name) for name in names}
    if version >= 8 and not part.error_code:
        fields |= {"error_message": None, "record_errors": []}
    return fields


@pytest.mark.parametrize("version", KIOS)
@PER_VERSION
@given(correlation_id=INT32, response=RESPONSES)
def test_an_answer_says_to_a_client_what_it_says_here(version, correlation_id, response) -> None:
    frame = encode_produce_response(version, correlation_id, response)
    found_id, body = kio_wire.split_frame(frame, version >= FIRST_FLEXIBLE)
    entity = kio_wire.read(kio_wire.module("produce", version, "response").ProduceResponse, body)
    assert found_id == correlation_id
    assert kio_wire.to_milliseconds(entity.throttle_time) == response.throttle_time_ms
    assert [
        (topic.name, [seen_by_kio(version, part) for part in topic.partition_responses]) for topic in entity.responses
    ] == [
        (topic.name, [expected_of(version, part) for part in topic.partition_responses]) for topic in response.responses
    ]


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (0, "00000001 0001 74 00000001 00000003 0023 ffffffffffffffff"),
        (1, "00000001 0001 74 00000001 00000003 0023 ffffffffffffffff 00000007"),
        (2, "00000001 0001 74 00000001 00000003 0023 ffffffffffffffff 0000000000000009 00000007"),
    ],
)
def test_the_oldest_versions_are_answered_too(version, body) -> None:
    part = PartitionProduceResponse(3, 35, -1, 9, 17, "why", 1, 2)
    response = ProduceResponse([TopicProduceResponse("t", [part])], 7)
    expected = bytes.fromhex(body)
    prefix = struct.pack(">ii", 4 + len(expected), 41)
    assert encode_produce_response(version, 41, response) == prefix + expected


def test_what_does_not_fit_is_a_bug_of_this_side() -> None:
    for part in (PartitionProduceResponse(2**31, 0), PartitionProduceResponse(0, 1, error_message="x" * 2**15)):
        with pytest.raises(LocalProtocolError, match="ProduceResponse cannot be encoded"):
            encode_produce_response(8, 1, ProduceResponse([TopicProduceResponse("t", [part])]))
