"""A client that speaks in frames and raw bytes: for tests of what a broker does with good, odd and hostile input.

It checks nothing on purpose: correlation ids, versions and lengths are the test's choice.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from strandline.protocol.api import API_OF, APIS
from strandline.protocol.messages import (
    Message,
    PartitionProduceData,
    ProduceRequest,
    Request,
    TopicProduceData,
)
from strandline.protocol.native.frame import (
    MAX_FRAME_BYTES,
    PREFIX_AND_HEADER_BYTES,
    FrameHeader,
    decode_body,
    encode_head,
    read_header,
)
from strandline.testkit.raw_connection import RawConnection


class Response(NamedTuple):
    """One frame from a broker. `attachments`: the raw bytes after the body."""

    header: FrameHeader
    message: Message
    attachments: bytes


def request_frame(
    message: Request, *, correlation_id: int = 1, version: int = 0, attachments: bytes = b"", api_key: int | None = None
) -> bytes:
    """The bytes of one request."""
    key = API_OF[type(message)].key if api_key is None else api_key
    return encode_head(key, version, correlation_id, message, len(attachments)) + attachments


def produce_request(size: int = 0, *, acks: int = -1) -> ProduceRequest:
    """Of one partition, `t-0`, whose batches take `size` bytes."""
    return ProduceRequest(acks, 30_000, [TopicProduceData("t", [PartitionProduceData(0, size)])])


def produce_frames(count: int, size: int = 10) -> bytes:
    """`count` Produce requests with zeros for batches; their correlation ids count from 0."""
    return b"".join(
        request_frame(produce_request(size), correlation_id=number, attachments=bytes(size)) for number in range(count)
    )


def frame_of(api_key: int, version: int, correlation_id: int, body: bytes, rest: bytes = b"") -> bytes:
    """A frame with a right header around any body."""
    head = struct.pack(
        ">iBBHBHBIBI",
        17 + len(body) + len(rest),
        0x94,
        0xCD,
        api_key,
        0xCD,
        version,
        0xCE,
        correlation_id,
        0xCE,
        len(body),
    )
    return head + body + rest


class RawClient(RawConnection):
    """One connection."""

    async def request(self, message: Request, *, correlation_id: int = 1, attachments: bytes = b"") -> Response | None:
        """Send one request and return the next response (None: the connection ended)."""
        await self.send(request_frame(message, correlation_id=correlation_id, attachments=attachments))
        return await self.response()

    async def response(self) -> Response | None:
        """The next response; None when the connection ended or broke before a whole one came."""
        while True:
            header = read_header(self.received, 0, len(self.received), 2 * MAX_FRAME_BYTES)
            if header is not None and len(self.received) >= header.size_bytes:
                frame = bytes(self.received[: header.size_bytes])
                del self.received[: header.size_bytes]
                return _decode(header, frame)
            if not await self.receive():
                return None

    async def responses(self, count: int) -> list[Response]:
        """The next `count` responses; AssertionError when the connection ended before."""
        found: list[Response] = []
        for _ in range(count):
            response = await self.response()
            assert response is not None, f"closed after {len(found)} responses"
            found.append(response)
        return found


def _decode(header: FrameHeader, frame: bytes) -> Response:
    body_end = PREFIX_AND_HEADER_BYTES + header.body_bytes
    message = decode_body(APIS[header.api_key].response, memoryview(frame)[PREFIX_AND_HEADER_BYTES:body_end])
    return Response(header, message, frame[body_end:])
