"""Every API that Kafka clients may use, at every version: kio's entities become our messages, and ours become its."""

from __future__ import annotations

import types
from dataclasses import MISSING, fields, is_dataclass
from datetime import timedelta
from functools import cache
from typing import Any, Union, get_args, get_origin

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode

from strandline.protocol.api import APIS, Api, ApiKey
from strandline.protocol.errors import ErrorCode, RemoteProtocolError
from strandline.protocol.kafka.converter import to_entity, to_message
from strandline.protocol.kafka.schemas import (
    NoSuchSchema,
    read_entity,
    request_class,
    response_class,
    write_entity,
)
from strandline.protocol.messages import (
    ApiVersionsRequest,
    CreateTopicsRequest,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    Message,
    MetadataRequest,
    MetadataResponse,
)
from strandline.protocol.types import NO_TOPIC_ID

BY_HAND = {ApiKey.PRODUCE, ApiKey.FETCH}
VERSIONS = [
    pytest.param(api, version, id=f"{api.key.name}-{version}")
    for api in APIS.values()
    if api.kafka is not None and api.key not in BY_HAND
    for version in range(api.kafka[0], api.kafka[1] + 1)
]
EXAMPLES = settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow], deadline=None)


@cache
def entities(entity: type[Any]) -> st.SearchStrategy[Any]:
    """Of one of kio's classes, with all of its fields."""
    return st.builds(entity, **{field.name: _values(field.type, field.metadata) for field in fields(entity)})


def _values(found: Any, metadata: Any) -> st.SearchStrategy[Any]:
    if get_origin(found) in (types.UnionType, Union):
        [inner] = [part for part in get_args(found) if part is not type(None)]
        return st.none() | _values(inner, metadata)
    if get_origin(found) is tuple:
        return st.lists(_values(get_args(found)[0], metadata), max_size=3).map(tuple)
    if is_dataclass(found):
        return entities(found)
    kafka_type = metadata["kafka_type"]
    if kafka_type in ("timedelta_i32", "timedelta_i64"):
        return st.integers(-1, 2**31 - 1).map(lambda ms: timedelta(milliseconds=ms))
    if kafka_type.startswith("int"):
        bits = int(kafka_type[3:])
        return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return {
        "uint16": st.integers(0, 2**16 - 1),
        "bool": st.booleans(),
        "string": st.text(max_size=5),
        "bytes": st.binary(max_size=5),
        "uuid": st.uuids(),
        "error_code": st.sampled_from([code for code in KioErrorCode if code != KioErrorCode.offset_not_available]),
        "float64": st.floats(allow_nan=False),
    }[kafka_type]


@pytest.mark.parametrize(("api", "version"), VERSIONS)
@EXAMPLES
@given(data=st.data())
def test_a_request_of_each_version_becomes_our_message_with_every_field_that_both_have(
    api: Api, version: int, data: st.DataObject
) -> None:
    entity = data.draw(entities(request_class(api.key, version)))
    try:
        message = to_message(api.request, read_entity(type(entity), memoryview(write_entity(entity))))
    except RemoteProtocolError:
        return  # what our messages cannot say: a partition assigned twice
    assert isinstance(message, api.request)
    msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=api.request)  # of the right types all through
    assert_same(entity, message)


def assert_same(entity: Any, message: Message) -> None:
    for ours in msgspec.structs.fields(type(message)):
        theirs = getattr(entity, ours.name, MISSING)
        found = getattr(message, ours.name)
        if isinstance(theirs, (int, str, bytes, bool)) and found is not None:
            assert found == theirs, ours.name
        elif isinstance(theirs, tuple) and isinstance(found, list) and len(theirs) == len(found):
            for each, one in zip(theirs, found, strict=True):
                if isinstance(one, Message):
                    assert_same(each, one)
        duration = getattr(entity, ours.name.removesuffix("_ms"), None)
        if isinstance(duration, timedelta):
            assert timedelta(milliseconds=found) == duration


@pytest.mark.parametrize(("api", "version"), VERSIONS)
@EXAMPLES
@given(data=st.data())
def test_a_response_can_be_written_in_each_version_and_is_read_as_it_was(
    api: Api, version: int, data: st.DataObject
) -> None:
    assert api.kafka is not None
    newest = response_class(api.key, api.kafka[1])  # which has every field that our message needs
    message = to_message(api.response, data.draw(entities(newest)))
    entity = to_entity(response_class(api.key, version), message)
    assert read_entity(type(entity), memoryview(write_entity(entity))) == entity
    assert_same(entity, message)


@pytest.mark.parametrize(("api", "version"), VERSIONS)
def test_a_failure_can_be_told_in_each_version(api: Api, version: int) -> None:
    failure = api.failure(None, ErrorCode.UNKNOWN_SERVER_ERROR, "why")
    written = write_entity(to_entity(response_class(api.key, version), failure))
    assert (-1).to_bytes(2, "big", signed=True) in written


@pytest.mark.parametrize(("api", "version"), VERSIONS)
@EXAMPLES
@given(data=st.data())
def test_whatever_is_cut_off_or_follows_is_one_typed_error(api: Api, version: int, data: st.DataObject) -> None:
    entity = data.draw(entities(request_class(api.key, version)))
    written = write_entity(entity)
    for wrong in (written[: data.draw(st.integers(0, max(0, len(written) - 1)))], written + b"\0"):
        if wrong != written:
            with pytest.raises(RemoteProtocolError):
                read_entity(type(entity), memoryview(wrong))


def test_what_follows_a_request_can_be_ignored_as_librdkafka_needs_it() -> None:
    entity = request_class(ApiKey.METADATA, 12)
    all_topics = memoryview(bytes.fromhex("00 00 00 00"))
    assert read_entity(entity, memoryview(bytes(7)), ignores_rest=True) == read_entity(entity, all_topics)


def test_what_has_no_schema_says_so() -> None:
    with pytest.raises(NoSuchSchema):
        request_class(4, 0)
    with pytest.raises(NoSuchSchema):
        response_class(ApiKey.METADATA, 999)


def test_all_topics_are_asked_for_by_none_in_version_0_and_by_null_later() -> None:
    def asked(version: int, topics: Any) -> Any:
        entity = request_class(ApiKey.METADATA, version)
        rest = {"allow_auto_topic_creation": False} if version >= 4 else {}
        return to_message(MetadataRequest, entity(topics=topics, **rest)).topics

    assert asked(0, ()) is None
    assert asked(1, ()) == []
    assert asked(1, None) is None
    assert asked(4, None) is None


def test_topics_may_be_asked_for_by_their_ids() -> None:
    entity = request_class(ApiKey.METADATA, 12)
    written = bytes.fromhex("03") + NO_TOPIC_ID + bytes.fromhex("0261 00") + bytes(range(16)) + bytes.fromhex("00 00")
    message = to_message(MetadataRequest, read_entity(entity, memoryview(written + bytes.fromhex("00 00 00"))))
    assert (message.topics, message.topic_ids) == (["a"], [bytes(range(16))])


@pytest.mark.parametrize("version", [10, 11, 12])
def test_a_topic_that_is_not_named_at_all_is_refused(version: int) -> None:
    entity = request_class(ApiKey.METADATA, version)
    rest = "00 00" if version >= 11 else "00 00 00"
    written = bytes.fromhex("02") + NO_TOPIC_ID + bytes.fromhex("00 00 00" + rest)
    with pytest.raises(RemoteProtocolError, match="without a name"):
        to_message(MetadataRequest, read_entity(entity, memoryview(written)))


def test_whoever_cannot_say_no_has_topics_created() -> None:
    old = to_message(MetadataRequest, request_class(ApiKey.METADATA, 3)(topics=()))
    assert old.allow_auto_topic_creation
    new = to_message(MetadataRequest, request_class(ApiKey.METADATA, 4)(topics=(), allow_auto_topic_creation=False))
    assert not new.allow_auto_topic_creation


def test_an_assignment_that_names_a_partition_twice_is_refused() -> None:
    written = bytes.fromhex("00000001 0001 74 ffffffff ffff 00000002 00000000 00000001 00000001")
    written += bytes.fromhex("00000000 00000001 00000002 00000000 00000001 00")
    with pytest.raises(RemoteProtocolError, match="twice"):
        to_message(CreateTopicsRequest, read_entity(request_class(ApiKey.CREATE_TOPICS, 2), memoryview(written)))


def test_a_code_that_kafka_does_not_have_is_an_unknown_error() -> None:
    part = ListOffsetsPartitionResponse(0, 31_999)
    message = ListOffsetsResponse([ListOffsetsTopicResponse("t", [part])])
    for version in (1, 6):
        entity = to_entity(response_class(ApiKey.LIST_OFFSETS, version), message)
        assert entity.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_what_the_schema_does_not_have_is_left_out() -> None:
    message = MetadataResponse([], [], cluster_id="c", error_message="not in any version")
    entity = to_entity(response_class(ApiKey.METADATA, 1), message)
    assert not hasattr(entity, "error_message") and not hasattr(entity, "cluster_id")
    assert to_message(ApiVersionsRequest, request_class(ApiKey.API_VERSIONS, 0)()).client_software_name == ""
