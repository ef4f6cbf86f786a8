"""Heartbeat written by hand says what Kafka's schemas say, in every version, and believes no length."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from strandline.protocol.errors import LocalProtocolError, RemoteProtocolError
from strandline.protocol.kafka.heartbeat import encode_heartbeat_response, read_heartbeat
from strandline.protocol.messages.groups import HeartbeatRequest, HeartbeatResponse
from support import kio_wire
from support.kio_wire import INT32, TEXT

VERSIONS = range(5)
PER_VERSION = settings(max_examples=40)
REQUESTS = st.builds(HeartbeatRequest, TEXT, INT32, TEXT, st.none() | TEXT)
SAMPLE = HeartbeatRequest("group", 7, "member", "instance")


def kios_body(version: int, request: HeartbeatRequest) -> bytes:
    kio = kio_wire.module("heartbeat", version, "request").HeartbeatRequest
    latest = {"group_instance_id": request.group_instance_id} if version >= 3 else {}
    fields = {"group_id": request.group_id, "generation_id": request.generation_id, "member_id": request.member_id}
    return kio_wire.written(kio(**fields, **latest))


def read(version: int, body: bytes) -> HeartbeatRequest:
    return read_heartbeat(version, memoryview(body))


def as_of(version: int, request: HeartbeatRequest) -> HeartbeatRequest:
    instance = request.group_instance_id if version >= 3 else None
    return HeartbeatRequest(request.group_id, request.generation_id, request.member_id, instance)


@pytest.mark.parametrize("version", VERSIONS)
@PER_VERSION
@given(request=REQUESTS)
def test_a_request_is_read_as_it_was_written(version, request) -> None:
    assert read(version, kios_body(version, request)) == as_of(version, request)


@pytest.mark.parametrize("version", VERSIONS)
@PER_VERSION
@given(data=st.data())
def test_what_is_read_of_a_damaged_body_is_what_stands_there(version, data) -> None:
    body = data.draw(kio_wire.damaged(st.builds(kios_body, st.just(version), REQUESTS)) | st.binary(max_size=30))
    try:
        request = read(version, body)
    except RemoteProtocolError as error:
        assert "\n" not in str(error)
        return
    try:
        entity = kio_wire.read(kio_wire.module("heartbeat", version, "request").HeartbeatRequest, body)
    except kio_wire.KIO_ERRORS:
        assume(False)
    assert (request.group_id, request.generation_id, request.member_id) == (
        entity.group_id,
        entity.generation_id,
        entity.member_id,
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_body_that_is_cut_off_anywhere_or_goes_on_is_refused(version) -> None:
    kio_wire.check_only_whole(partial(read, version), kios_body(version, SAMPLE))


@pytest.mark.parametrize("version", VERSIONS)
def test_no_length_is_believed_that_is_not_there(version) -> None:
    kio_wire.check_no_length_is_believed(partial(read, version), kios_body(version, SAMPLE))


@pytest.mark.parametrize("version", VERSIONS)
@PER_VERSION
@given(correlation_id=INT32, code=st.sampled_from([0, 22, 25, 27]), throttle_time_ms=st.integers(0, 2**31 - 1))
def test_an_answer_says_to_a_client_what_it_says_here(version, correlation_id, code, throttle_time_ms) -> None:
    frame = encode_heartbeat_response(version, correlation_id, HeartbeatResponse(code, throttle_time_ms))
    found_id, body = kio_wire.split_frame(frame, version >= 4)
    entity = kio_wire.read(kio_wire.module("heartbeat", version, "response").HeartbeatResponse, body)
    assert (found_id, entity.error_code) == (correlation_id, code)
    if version >= 1:
        assert kio_wire.to_milliseconds(entity.throttle_time) == throttle_time_ms


def test_what_does_not_fit_is_a_bug_of_this_side() -> None:
    with pytest.raises(LocalProtocolError, match="HeartbeatResponse cannot be encoded"):
        encode_heartbeat_response(4, 1, HeartbeatResponse(2**15))
