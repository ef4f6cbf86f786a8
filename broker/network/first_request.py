"""Whether the first bytes of a connection show that a broker made it, before anything of it is served.

Brokers speak the native dialect among each other, and begin with ApiVersions, which has the key of whom they ask
(`membership/broker_key`). What is received for that is bounded: who sends something else is not read any further.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from strandline.protocol.api import ApiKey
from strandline.protocol.errors import RemoteProtocolError
from strandline.protocol.messages import ApiVersionsRequest
from strandline.protocol.native.frame import PREFIX_AND_HEADER_BYTES, decode_body, read_header
from strandline.runtime.network import Transport, TransportClosed

MAX_BYTES = 1024
"""Of the first request of a broker, several times as much as it has."""

IsKey = Callable[[str], bool]
"""Whether a broker that is asked here is known by that key."""


async def first_of_broker(transport: Transport, is_key: IsKey) -> bytes | None:
    """The first bytes, once they show such a key: the whole request is in them. None: it is none of a broker."""
    received = bytearray()
    buffer = memoryview(bytearray(MAX_BYTES))
    try:
        while (told := told_key(received)) is None:
            try:
                count = transport.recv_into_nowait(buffer[: MAX_BYTES - len(received)])
            except trio.WouldBlock:
                await transport.wait_readable()
                continue
            if not count:
                return None
            received += buffer[:count]
    except TransportClosed:
        return None
    return bytes(received) if is_key(told) else None


def told_key(received: bytes | bytearray) -> str | None:
    """The key that a first request tells, "": none. None: not all of the request is there yet."""
    try:
        header = read_header(received, 0, len(received), MAX_BYTES)
        if header is None:
            return None
        if header.api_key != ApiKey.API_VERSIONS or header.size_bytes > MAX_BYTES:
            return ""
        if len(received) < header.size_bytes:
            return None
        body = bytes(received[PREFIX_AND_HEADER_BYTES : PREFIX_AND_HEADER_BYTES + header.body_bytes])
        return decode_body(ApiVersionsRequest, body).broker_key
    except RemoteProtocolError:
        return ""
