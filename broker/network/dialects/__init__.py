"""The dialects of the wire: how the bytes of a connection become requests, and answers become bytes.

A dialect is a module (or a folder) here with an object of the class below, which `server.py` gives to the request
channel. It owns framing, headers, bodies, where record batches lie, and which APIs it speaks in which versions. Which
APIs there are, who may use them and in what order they are answered is none of its business. All of it is called within
a burst: plain functions that copy nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from strandline.broker.network.regions import Piece
from strandline.broker.network.request_context import RequestContext
from strandline.protocol.api import Api
from strandline.protocol.messages import Message, Request
from strandline.runtime.disk import Buffer, FileRegion

PREFIX_BYTES = 4
"""Frames of every dialect begin with their length, an int32."""

Records = Sequence[memoryview | None]
"""The record batches of each partition that a message names, in its order; None where there are none."""

Regions = Sequence[FileRegion | memoryview | bytes | None]
"""The same of an answer, where they lie."""


class Header(Protocol):
    """What is known of a request before its body is read. Further fields are the dialect's own."""

    @property
    def size_bytes(self) -> int:
        """Of the whole frame."""

    @property
    def api_key(self) -> int: ...

    @property
    def version(self) -> int: ...

    @property
    def correlation_id(self) -> int: ...

    @property
    def body_bytes(self) -> int:
        """Without record batches: what its decoding costs."""


class Dialect(Protocol):
    """See the module. RemoteProtocolError: what a peer sent breaks the protocol."""

    name: str
    first_byte: int
    """Of each frame, behind its length: tells one dialect from the others. Kafka's frames begin with an API key of two
    bytes, so with 0x00."""

    def read_header(self, buffer: Buffer, position: int, available: int, max_frame_bytes: int) -> Header | None:
        """Of the frame at `position`, of which `available` bytes are there. None: too few to tell. Raises as soon as it
        is clear that no good frame comes."""

    def versions(self, api: Api) -> tuple[int, int] | None:
        """The lowest and the highest version that is routed, from the API's row, which has a field for each dialect.
        None: this dialect has no such API."""

    def listed(self, api: Api) -> tuple[int, int] | None:
        """The same as ApiVersions tells it, where clients need to be told more than that."""

    def named(self, context: RequestContext, header: Header) -> RequestContext:
        """Who asks, as far as the header tells; a body may tell more (`decode`)."""

    def decode(
        self, context: RequestContext, api: Api, header: Header, frame: memoryview
    ) -> tuple[RequestContext, Header, Request, Records]:
        """The request of a whole frame. Its context may be another than the last one's, and its header another than
        `read_header` gave: where the batches lie within the body, only now is it known what is no part of them. Also
        asked for versions that are not routed, for the sake of the refusal: raise where such a body cannot be read."""

    def encode(
        self, api: Api, header: Header, message: Message, regions: Regions
    ) -> tuple[bytes, Sequence[Piece], int]:
        """The answer to a request: its first bytes, what follows them (regions, and bytes between them where the
        dialect has some), and how many bytes that is. LocalProtocolError: it cannot be encoded, in that version for
        instance."""

    def refusal(self, header: Header, frame: memoryview) -> bytes | None:
        """The answer to a whole frame that asks for an API which is not spoken here. None: there is no answer that its
        sender would understand."""
