"""Fetch written by hand says what Kafka's schemas say, in every version, and believes no length."""

from __future__ import annotations

import uuid
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from strandline.protocol.errors import LocalProtocolError, RemoteProtocolError
from strandline.protocol.kafka.fetch import encode_fetch_response, read_fetch
from strandline.protocol.messages import (
    EpochEndOffset,
    FetchPartition,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResponse,
    ForgottenTopic,
)
from strandline.protocol.messages.base import MAX_NAMED
from strandline.protocol.types import NO_TOPIC_ID
from support import kio_wire
from support.kio_wire import INT8, INT32, INT64, TEXT, TOPIC_IDS

VERSIONS = range(4, 19)
PER_VERSION = settings(max_examples=40)
"""Most versions differ little from the one before."""
FIRST_FLEXIBLE = 12
FIRST_WITH_TOPIC_IDS = 13


def uuid_of(topic_id: bytes) -> uuid.UUID | None:
    return None if topic_id == NO_TOPIC_ID else uuid.UUID(bytes=topic_id)


def named(version: int, name: str, topic_id: bytes) -> dict[str, Any]:
    return {"topic": name} if version < FIRST_WITH_TOPIC_IDS else {"topic_id": uuid_of(topic_id)}


def kios_body(version: int, request: FetchRequest) -> bytes:
    kio = kio_wire.module("fetch", version, "request")

    def partition(each: FetchPartition) -> Any:
        fields = {"partition": each.partition, "fetch_offset": each.fetch_offset}
        fields["partition_max_bytes"] = each.partition_max_bytes
        fields |= {"log_start_offset": each.log_start_offset} if version >= 5 else {}
        fields |= {"current_leader_epoch": each.current_leader_epoch} if version >= 9 else {}
        fields |= {"last_fetched_epoch": each.last_fetched_epoch} if version >= 12 else {}
        return kio.FetchPartition(**fields)

    fields: dict[str, Any] = {
        "max_wait": kio_wire.milliseconds(request.max_wait_ms),
        "min_bytes": request.min_bytes,
        "max_bytes": request.max_bytes,
        "isolation_level": request.isolation_level,
    }
    fields["topics"] = tuple(
        kio.FetchTopic(
            **named(version, topic.topic, topic.topic_id),
            partitions=tuple(partition(each) for each in topic.partitions),
        )
        for topic in request.topics
    )
    if version < 15:
        fields["replica_id"] = request.replica_id
    else:
        fields["replica_state"] = kio.ReplicaState(replica_id=request.replica_id, replica_epoch=request.replica_epoch)
    if version >= 7:
        fields |= {"session_id": request.session_id, "session_epoch": request.session_epoch}
        fields["forgotten_topics_data"] = tuple(
            kio.ForgottenTopic(**named(version, each.topic, each.topic_id), partitions=tuple(each.partitions))
            for each in request.forgotten_topics_data
        )
    if version >= 11:
        fields["rack_id"] = request.rack_id
    return kio_wire.written(kio.FetchRequest(**fields))


def as_of(version: int, request: FetchRequest) -> FetchRequest:
    """What of a request its version has a place for."""
    with_ids = version >= FIRST_WITH_TOPIC_IDS

    def at(since: int, name: str, part: Any) -> dict[str, Any]:
        """The default of a field that comes later."""
        defaults = {field.name: field.default for field in msgspec.structs.fields(part)}
        return {} if version >= since else {name: defaults[name]}

    def partition(each: FetchPartition) -> FetchPartition:
        missing = at(5, "log_start_offset", each) | at(9, "current_leader_epoch", each)
        return msgspec.structs.replace(each, **missing, **at(12, "last_fetched_epoch", each))

    def topic(each: Any, partitions: list[Any]) -> Any:
        kept = {"topic": "", "topic_id": each.topic_id} if with_ids else {"topic_id": NO_TOPIC_ID}
        return msgspec.structs.replace(each, partitions=partitions, **kept)

    fields: dict[str, Any] = at(15, "replica_epoch", request) | at(11, "rack_id", request)
    fields |= at(7, "session_id", request) | at(7, "session_epoch", request)
    forgotten = [topic(each, each.partitions) for each in request.forgotten_topics_data] if version >= 7 else []
    topics = [topic(each, [partition(part) for part in each.partitions]) for each in request.topics]
    fields["knows_followers"] = version >= 11
    return msgspec.structs.replace(request, topics=topics, forgotten_topics_data=forgotten, **fields)


PARTITIONS = st.lists(st.builds(FetchPartition, INT32, INT64, INT32, INT32, INT32, INT64), max_size=3)
REQUESTS = st.builds(
    FetchRequest,
    max_wait_ms=INT32,
    min_bytes=INT32,
    max_bytes=INT32,
    topics=st.lists(st.builds(FetchTopic, TEXT, PARTITIONS, TOPIC_IDS), max_size=3),
    replica_id=INT32,
    replica_epoch=INT64,
    isolation_level=INT8,
    session_id=INT32,
    session_epoch=INT32,
    forgotten_topics_data=st.lists(st.builds(ForgottenTopic, TEXT, st.lists(INT32, max_size=3), TOPIC_IDS), max_size=3),
    rack_id=TEXT,
)


def read(version: int, body: bytes) -> FetchRequest:
    return read_fetch(version, memoryview(body))


@pytest.mark.parametrize("version", VERSIONS)
@PER_VERSION
@given(request=REQUESTS)
def test_a_request_is_read_as_it_was_written(version, request) -> None:
    assert read(version, kios_body(version, request)) == as_of(version, request)


@pytest.mark.parametrize("version", VERSIONS)
@PER_VERSION
@given(data=st.data())
def test_what_is_read_of_a_damaged_body_is_what_stands_there(version, data) -> None:
    bodies = st.builds(kios_body, st.just(version), REQUESTS)
    body = data.draw(kio_wire.damaged(bodies) | st.binary(max_size=80))
    try:
        request = read(version, body)
    except RemoteProtocolError as error:
        assert "\n" not in str(error)
        return
    try:
        kio_wire.read(kio_wire.module("fetch", version, "request").FetchRequest, body)
    except kio_wire.KIO_ERRORS:
        assume(False)
    # Read again what kio would write of it: the same, whatever was damaged.
    assert read(version, kios_body(version, request)) == request


PART = FetchPartition(3, 10**10, 2**20, 5, 4, 7)
SAMPLE = FetchRequest(
    500,
    1,
    2**20,
    [FetchTopic("a", [PART, PART], b"a" * 16), FetchTopic("b", [PART], b"b" * 16)],
    2,
    9,
    0,
    77,
    3,
    [ForgottenTopic("c", [1, 2], b"c" * 16)],
    "rack",
)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_body_that_is_cut_off_anywhere_or_goes_on_is_refused(version) -> None:
    kio_wire.check_only_whole(partial(read, version), kios_body(version, SAMPLE))


@pytest.mark.parametrize("version", VERSIONS)
def test_no_length_is_believed_that_is_not_there(version) -> None:
    kio_wire.check_no_length_is_believed(partial(read, version), kios_body(version, SAMPLE))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_names_no_more_than_a_broker_should_lead(version) -> None:
    def request(partitions: int, forgotten: int) -> bytes:
        return kios_body(
            version,
            FetchRequest(
                0,
                0,
                0,
                [FetchTopic("a", [PART] * 5), FetchTopic("b", [PART] * (partitions - 5))],
                forgotten_topics_data=[ForgottenTopic("a", [0] * 5), ForgottenTopic("b", [0] * (forgotten - 5))],
            ),
        )

    assert len(read(version, request(MAX_NAMED, MAX_NAMED)).topics[1].partitions) == MAX_NAMED - 5
    with pytest.raises(RemoteProtocolError, match="may be named"):
        read(version, request(MAX_NAMED + 1, 5))
    if version >= 7:
        with pytest.raises(RemoteProtocolError, match="may be named"):
            read(version, request(5, MAX_NAMED + 1))


def test_the_state_of_a_replica_is_read_whole() -> None:
    body = kios_body(16, SAMPLE)
    before, state = body[:-16], body[-13:]
    assert body[-16:-13] == b"\x01\x01\x0d"
    cluster_id, unknown = b"\x00\x03\x02xy", b"\x09\x00"
    assert read(16, before + b"\x03" + cluster_id + b"\x01\x0d" + state + unknown) == as_of(16, SAMPLE)
    for size, other in ((12, state[:-1]), (14, state + b"\x00"), (11, state[1:-1])):
        with pytest.raises(RemoteProtocolError):
            read(16, before + bytes([1, 1, size]) + other)


# --- the answer --------------------------------------------------------------------------------------------------

DATA = st.builds(
    FetchPartitionData,
    partition_index=INT32,
    error_code=st.sampled_from([0, 1, 6]),
    high_watermark=INT64,
    log_start_offset=INT64,
    last_stable_offset=INT64,
    diverging_epoch=st.none() | st.builds(EpochEndOffset, INT32, INT64),
    current_leader_id=st.integers(-1, 2**31 - 1),
    current_leader_epoch=INT32,
    preferred_read_replica=INT32,
)
RESPONSES = st.builds(
    FetchResponse,
    st.lists(st.builds(FetchTopicResponse, TEXT, st.lists(DATA, max_size=3), TOPIC_IDS), max_size=3),
    error_code=st.sampled_from([0, 70, 71]),
    throttle_time_ms=st.integers(0, 2**31 - 1),
    session_id=INT32,
)
RECORDS = st.just(b"") | st.binary(max_size=40) | st.sampled_from([bytes(126), bytes(127), b"r" * 16383])


def joined(segments: list[bytes], regions: list[bytes]) -> bytes:
    """What goes over the wire."""
    sent = [each for each in regions if each]
    assert len(segments) - len(sent) in (0, 1)
    assert all(segments)
    whole = b""
    for number, segment in enumerate(segments):
        whole += segment + (sent[number] if number < len(sent) else b"")
    return whole


def seen_by_kio(version: int, part: Any) -> dict[str, Any]:
    names = ["partition_index", "error_code", "high_watermark", "last_stable_offset", "records"]
    names += ["log_start_offset"] if version >= 5 else []
    names += ["preferred_read_replica"] if version >= 11 else []
    seen = {name: getattr(part, name) for name in names}
    assert part.aborted_transactions == ()
    if version >= 12:
        leader, diverging = part.current_leader, part.diverging_epoch
        seen["leader"] = (leader.leader_id, leader.leader_epoch)
        seen["diverging"] = (diverging.epoch, diverging.end_offset)
    return seen


def expected_of(version: int, part: FetchPartitionData, records: bytes) -> dict[str, Any]:
    names = ["partition_index", "error_code", "high_watermark", "last_stable_offset"]
    names += ["log_start_offset"] if version >= 5 else []
    names += ["preferred_read_replica"] if version >= 11 else []
    fields = {name: getattr(part, name) for name in names} | {"records": records}
    if version >= 12:
        known = part.current_leader_id != -1
        fields["leader"] = (part.current_leader_id, part.current_leader_epoch) if known else (-1, -1)
        fields["diverging"] = (
            (-1, -1) if part.diverging_epoch is None else msgspec.structs.astuple(part.diverging_epoch)
        )
    return fields


@pytest.mark.parametrize("version", VERSIONS)
@PER_VERSION
@given(correlation_id=INT32, response=RESPONSES, data=st.data())
def test_an_answer_says_to_a_client_what_it_says_here(version, correlation_id, response, data) -> None:
    regions = [data.draw(RECORDS) for topic in response.responses for _ in topic.partitions]
    segments = encode_fetch_response(version, correlation_id, response, [len(each) for each in regions])
    found_id, body = kio_wire.split_frame(joined(segments, regions), version >= FIRST_FLEXIBLE)
    entity = kio_wire.read(kio_wire.module("fetch", version, "response").FetchResponse, body)
    assert found_id == correlation_id
    assert kio_wire.to_milliseconds(entity.throttle_time) == response.throttle_time_ms
    if version >= 7:
        assert (entity.error_code, entity.session_id) == (response.error_code, response.session_id)
    left = iter(regions)
    assert [[seen_by_kio(version, part) for part in topic.partitions] for topic in entity.responses] == [
        [expected_of(version, part, next(left)) for part in topic.partitions] for topic in response.responses
    ]
    if version >= FIRST_WITH_TOPIC_IDS:
        assert [t.topic_id for t in entity.responses] == [uuid_of(t.topic_id) for t in response.responses]
    else:
        assert [topic.topic for topic in entity.responses] == [topic.topic for topic in response.responses]


@pytest.mark.parametrize("version", VERSIONS)
def test_records_of_gigabytes_are_only_counted(version) -> None:
    response = FetchResponse([FetchTopicResponse("t", [FetchPartitionData(0, 0, 0)] * 2)])
    size = 2**30 - 1000
    segments = encode_fetch_response(version, 1, response, [size, size])
    length = int.from_bytes(segments[0][:4], "big")
    assert length == 2 * size + sum(map(len, segments)) - 4
    with pytest.raises(LocalProtocolError, match="FetchResponse cannot be encoded"):
        encode_fetch_response(version, 1, response, [2**30, 2**30])


def test_there_is_a_size_for_each_partition() -> None:
    response = FetchResponse([FetchTopicResponse("t", [FetchPartitionData(0, 0, 0)] * 2)])
    for sizes in ([1], [1, 2, 3]):
        with pytest.raises(LocalProtocolError):
            encode_fetch_response(16, 1, response, sizes)
