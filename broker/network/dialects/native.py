"""The native dialect: `protocol/native/frame.py` says what its frames are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from msgspec.structs import force_setattr

from strandline.broker.network.dialects import Header, Records, Regions
from strandline.broker.network.regions import Piece
from strandline.broker.network.request_bounds import (
    BROAD_BODY_BYTES,
    LIMITS,
    MAX_CLIENT_BODY_BYTES,
    check_named,
    collector_paused,
)
from strandline.broker.network.request_context import MAX_CLIENT_ID_CHARACTERS, RequestContext
from strandline.protocol.api import Api
from strandline.protocol.errors import RemoteProtocolError
from strandline.protocol.messages import ApiVersionsRequest, FetchResponse, Message, ProduceRequest, Request
from strandline.protocol.messages.base import MAX_NAMED
from strandline.protocol.native.frame import (
    FIRST_BYTE,
    PREFIX_AND_HEADER_BYTES,
    cut_records,
    decode_body,
    encode_head,
    read_header,
)
from strandline.runtime.disk import FileRegion

MARKERS_PER_ELEMENT = 40
"""Where elements are bounded: so many bytes of a body per element may look like a list, a map or an extension. A
partition has fewer even when each byte of its numbers does (FetchPartition: 32; of a topic's id, which is random, 3 of
16 do). 2 MiB of empty lists took 260 to 380 ms; they are refused in 2."""

_MARKERS = bytes((*range(0x80, 0xA0), *range(0xC7, 0xCA), *range(0xD4, 0xD9), *range(0xDC, 0xE0)))
"""First bytes of maps, arrays and extensions: what is expensive to make."""


class NativeDialect:
    """See `Dialect`."""

    name = "native"
    first_byte = FIRST_BYTE

    read_header = staticmethod(read_header)

    def versions(self, api: Api) -> tuple[int, int]:
        return api.native

    def listed(self, api: Api) -> tuple[int, int] | None:
        return self.versions(api)

    def named(self, context: RequestContext, header: Header) -> RequestContext:
        return context

    def decode(
        self, context: RequestContext, api: Api, header: Header, frame: memoryview
    ) -> tuple[RequestContext, Header, Request, Records]:
        """The client's id comes once, with ApiVersions, and holds for the whole connection."""
        body_end = PREFIX_AND_HEADER_BYTES + header.body_bytes
        body = frame[PREFIX_AND_HEADER_BYTES:body_end]
        if header.body_bytes <= BROAD_BODY_BYTES:
            message = decode_body(api.request, body)
        else:
            message = decode_broad(api, body)
        if isinstance(message, ProduceRequest):
            return context, header, message, cut_records(message, frame[body_end:])
        if isinstance(message, ApiVersionsRequest):
            context = replace(context, client_id=message.client_id[:MAX_CLIENT_ID_CHARACTERS])
        return context, header, message, ()

    def encode(
        self, api: Api, header: Header, message: Message, regions: Regions
    ) -> tuple[bytes, Sequence[Piece], int]:
        attached_bytes = name_sizes(cast(FetchResponse, message), regions) if regions else 0
        head = encode_head(header.api_key, header.version, header.correlation_id, message, attached_bytes)
        return head, [region for region in regions if region is not None] if attached_bytes else (), attached_bytes

    def refusal(self, header: Header, frame: memoryview) -> bytes | None:
        return None  # who speaks it has our list of APIs


NATIVE = NativeDialect()


def decode_broad(api: Api, body: memoryview) -> Request:
    """A large body, of which what clients send is bounded (`request_bounds`)."""
    is_bounded = not api.inter_broker_only
    try:
        if is_bounded:
            if len(body) > MAX_CLIENT_BODY_BYTES:
                raise RemoteProtocolError(f"body of {len(body)} bytes")
            if len(body) - len(bytes(body).translate(None, _MARKERS)) > MARKERS_PER_ELEMENT * MAX_NAMED:
                raise RemoteProtocolError(f"a {api.request.__name__} of more lists than its topics and partitions need")
        with collector_paused():
            message = decode_body(api.request, body)
        if is_bounded:
            check_named(message)
    except RemoteProtocolError as error:
        raise RemoteProtocolError(f"{error} ({LIMITS})" if is_bounded else str(error)) from error
    return message


def name_sizes(message: FetchResponse, regions: Regions) -> int:
    """Write into each partition of the answer how many bytes of records it has; returns their sum."""
    parts = [part for topic in message.responses for part in topic.partitions]
    attached_bytes = 0
    for part, region in zip(parts, regions, strict=True):
        if region is not None:
            size = region.length if isinstance(region, FileRegion) else len(region)
            force_setattr(part, "records_size", size)  # making another one takes ten times as long
            attached_bytes += size
    return attached_bytes
