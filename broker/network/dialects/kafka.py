"""Kafka's dialect: what its clients send and read, at the versions that `protocol/api.py` names.

| requests | read and written by |
|---|---|
| Produce, Fetch, Heartbeat: hot | `protocol/kafka/produce.py`, `fetch.py`, `heartbeat.py`, by hand |
| the answers to Metadata, ListOffsets, DescribeConfigs, DescribeProducers: large | `metadata.py`, … there, by hand |
| the others | kio's schemas: `protocol/kafka/schemas.py`, `converter.py` |

Brokers do not speak it among each other. The client's id stands in the header of each request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, cast

from strandline.broker.network.dialects import Header, Records, Regions
from strandline.broker.network.regions import Piece
from strandline.broker.network.request_bounds import (
    BROAD_BODY_BYTES,
    LIMITS,
    MAX_CLIENT_BODY_BYTES,
    collector_paused,
)
from strandline.broker.network.request_context import MAX_CLIENT_ID_CHARACTERS, RequestContext
from strandline.protocol.api import Api, ApiKey
from strandline.protocol.errors import ErrorCode, LocalProtocolError, RemoteProtocolError
from strandline.protocol.kafka.converter import to_entity, to_message
from strandline.protocol.kafka.describe_configs import encode_describe_configs_response
from strandline.protocol.kafka.describe_producers import encode_describe_producers_response
from strandline.protocol.kafka.fetch import encode_fetch_response, read_fetch
from strandline.protocol.kafka.header import FIRST_BYTE, KafkaHeader, behind_tags, read_header
from strandline.protocol.kafka.heartbeat import encode_heartbeat_response, read_heartbeat
from strandline.protocol.kafka.list_offsets import encode_list_offsets_response
from strandline.protocol.kafka.metadata import encode_metadata_response
from strandline.protocol.kafka.primitives import frame_of
from strandline.protocol.kafka.produce import encode_produce_response, read_produce
from strandline.protocol.kafka.refusals import refusal
from strandline.protocol.kafka.schemas import NoSuchSchema, read_entity, request_class, response_class, write_entity
from strandline.protocol.messages import (
    ApiVersion,
    ApiVersionsResponse,
    FetchResponse,
    Message,
    Request,
)
from strandline.protocol.messages.base import MAX_NAMED
from strandline.runtime.disk import FileRegion

OLDEST_LISTED_PRODUCE = 0
"""Old librdkafka believes that a broker whose list begins later has no compression, and silently sends uncompressed;
the version that it sends is a later one all the same."""

_PRODUCE, _FETCH, _API_VERSIONS = ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.API_VERSIONS
_HEARTBEAT = ApiKey.HEARTBEAT

_READ_BY_HAND = {_PRODUCE: range(OLDEST_LISTED_PRODUCE, 12), _FETCH: range(4, 19), _HEARTBEAT: range(5)}
_FIRST_FLEXIBLE = {_PRODUCE: 9, _FETCH: 12, _HEARTBEAT: 4}
"""From here on headers and bodies have tagged fields (ProduceRequest.json …)."""

_WRITTEN_BY_HAND = {
    **_READ_BY_HAND,
    ApiKey.METADATA: range(13),
    ApiKey.LIST_OFFSETS: range(1, 10),
    ApiKey.DESCRIBE_CONFIGS: range(1, 5),
    ApiKey.DESCRIBE_PRODUCERS: range(1),
}
"""Versions. Requests of others are not read, and refused in the form that kio knows, if it does."""

_WRITERS: Mapping[ApiKey, Callable[[int, int, Any], bytes]] = {
    _PRODUCE: encode_produce_response,
    _HEARTBEAT: encode_heartbeat_response,
    ApiKey.METADATA: encode_metadata_response,
    ApiKey.LIST_OFFSETS: encode_list_offsets_response,
    ApiKey.DESCRIBE_CONFIGS: encode_describe_configs_response,
    ApiKey.DESCRIBE_PRODUCERS: encode_describe_producers_response,
}
"""Answers without record batches: (version, correlation id, message) → the frame."""


class KafkaDialect:
    """See `Dialect`."""

    name = "kafka"
    first_byte = FIRST_BYTE

    read_header = staticmethod(read_header)

    def versions(self, api: Api) -> tuple[int, int] | None:
        return api.kafka

    def listed(self, api: Api) -> tuple[int, int] | None:
        if api.key is _PRODUCE and api.kafka is not None:
            return OLDEST_LISTED_PRODUCE, api.kafka[1]
        return api.kafka

    def named(self, context: RequestContext, header: Header) -> RequestContext:
        client_id = cast(KafkaHeader, header).client_id.decode(errors="replace")[:MAX_CLIENT_ID_CHARACTERS]
        return context if client_id == context.client_id else replace(context, client_id=client_id)

    def decode(
        self, context: RequestContext, api: Api, header: Header, frame: memoryview
    ) -> tuple[RequestContext, Header, Request, Records]:
        header = cast(KafkaHeader, header)
        context = self.named(context, header)
        body = frame[header.size_bytes - header.body_bytes :]
        version = header.version
        if api.key not in _READ_BY_HAND:
            return context, header, _read_cold(api, version, body), ()
        if version not in _READ_BY_HAND[api.key]:
            raise RemoteProtocolError(f"{api.key.name} has no version {version} here")
        if version >= _FIRST_FLEXIBLE[api.key]:
            body = behind_tags(body)
        if api.key is _PRODUCE:
            message, records = read_produce(version, body)
            header.body_bytes -= sum(len(batches) for batches in records if batches is not None)
            _check_size(header.body_bytes)
            return context, header, message, records
        _check_size(len(body))
        return context, header, read_fetch(version, body) if api.key is _FETCH else read_heartbeat(version, body), ()

    def encode(
        self, api: Api, header: Header, message: Message, regions: Regions
    ) -> tuple[bytes, Sequence[Piece], int]:
        if api.key is _API_VERSIONS:
            return _encode_api_versions(api, header, cast(ApiVersionsResponse, message)), (), 0
        if api.key in _WRITTEN_BY_HAND and header.version in _WRITTEN_BY_HAND[api.key]:
            if api.key is _FETCH:
                return _encode_fetch(header, cast(FetchResponse, message), regions)
            return _WRITERS[api.key](header.version, header.correlation_id, message), (), 0
        return _encode_cold(api, header, header.version, message), (), 0

    def refusal(self, header: Header, frame: memoryview) -> bytes | None:
        body = frame[header.size_bytes - header.body_bytes :]
        return refusal(header.api_key, header.version, header.correlation_id, body)


KAFKA = KafkaDialect()


def _check_size(body_bytes: int) -> None:
    """Of a body without its record batches."""
    if body_bytes > MAX_CLIENT_BODY_BYTES:
        raise RemoteProtocolError(f"a body of {body_bytes} bytes, more than {MAX_CLIENT_BODY_BYTES}")


def _read_cold(api: Api, version: int, body: memoryview) -> Request:
    """A request by its schema; what it may name is bounded (`request_bounds`).

    What follows it is ignored, as Kafka does: librdkafka 2.16 reserves four bytes for the length of a list of topics.
    The three that it does not need it sends behind the question for all topics (Metadata from version 9).
    """
    assert api.kafka is not None
    if not api.kafka[0] <= version <= api.kafka[1]:  # our message may need what that version does not have
        raise RemoteProtocolError(f"{api.key.name} has no version {version} here")
    try:
        entity_class = request_class(api.key, version)
    except NoSuchSchema as error:
        raise RemoteProtocolError(str(error)) from error
    if entity_class.__flexible__:
        body = behind_tags(body)
    try:
        if len(body) <= BROAD_BODY_BYTES:
            return cast(Request, to_message(api.request, read_entity(entity_class, body, ignores_rest=True)))
        _check_size(len(body))
        with collector_paused():
            entity = read_entity(entity_class, body, ignores_rest=True, max_named=MAX_NAMED)
            return cast(Request, to_message(api.request, entity))
    except RemoteProtocolError as error:
        raise RemoteProtocolError(f"{error} ({LIMITS})" if len(body) > BROAD_BODY_BYTES else str(error)) from error


def _encode_cold(api: Api, header: Header, version: int, message: Message) -> bytes:
    try:
        entity_class = response_class(api.key, version)
    except NoSuchSchema as error:
        raise LocalProtocolError(str(error)) from error
    body = write_entity(to_entity(entity_class, message))
    has_tags = entity_class.__flexible__ and api.key is not _API_VERSIONS
    return frame_of(header.correlation_id, has_tags, body)


def _encode_api_versions(api: Api, header: Header, message: ApiVersionsResponse) -> bytes:
    """Who asks in a version that is not served gets version 0 and the range that is (KIP-511)."""
    assert api.kafka is not None
    lowest, highest = api.kafka
    if lowest <= header.version <= highest:
        return _encode_cold(api, header, header.version, message)
    refusal = ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, [ApiVersion(api.key, lowest, highest)])
    return _encode_cold(api, header, lowest, refusal)


def _encode_fetch(header: Header, message: FetchResponse, regions: Regions) -> tuple[bytes, Sequence[Piece], int]:
    """Record batches stand within the answer's body, each between two pieces of it."""
    if not regions:
        count = sum(len(topic.partitions) for topic in message.responses)
        [frame] = encode_fetch_response(header.version, header.correlation_id, message, [0] * count)
        return frame, (), 0
    sizes = [_size(region) for region in regions]
    head, *behind = encode_fetch_response(header.version, header.correlation_id, message, sizes)
    pieces: list[Piece] = []
    between = iter(behind)
    for region, size in zip(regions, sizes, strict=True):
        if region is not None and size:
            pieces.append(region)
            pieces.extend(islice(between, 1))
    return head, pieces, sum(sizes) + sum(map(len, behind))


def _size(region: FileRegion | memoryview | bytes | None) -> int:
    if region is None:
        return 0
    return region.length if isinstance(region, FileRegion) else len(region)
