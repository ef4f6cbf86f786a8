"""Frames of Kafka's dialect, as raw as a test wants them, and what a client reads out of an answer."""

from __future__ import annotations

import struct
from dataclasses import fields, is_dataclass
from typing import Any

from kio.serial import entity_reader
from kio.static.constants import EntityType

from support.kafka_entities import class_of
from support.raw_client import RawClient

CORRELATION_ID = 77


def kafka_frame(
    key: int,
    version: int,
    body: bytes,
    *,
    correlation_id: int = CORRELATION_ID,
    client_id: bytes = b"test",
    flexible: bool | None = None,
) -> bytes:
    """A right header around any body. flexible: whether the header has tagged fields; None: as the schema says."""
    if flexible is None:
        flexible = class_of(key, version).__flexible__
    head = struct.pack(">hhih", key, version, correlation_id, len(client_id)) + client_id + (b"\0" if flexible else b"")
    return struct.pack(">i", len(head) + len(body)) + head + body


async def read_frame(client: RawClient) -> bytes | None:
    """What follows the length of the next answer; None when the connection ended before a whole one came."""
    while True:
        received = client._received
        if len(received) >= 4:
            size = 4 + struct.unpack_from(">i", received)[0]
            if len(received) >= size:
                frame = bytes(received[4:size])
                del received[:size]
                return frame
        if not await client._receive():
            return None


def answer_in(frame: bytes, key: int, version: int) -> Any:
    """kio's entity; AssertionError: the frame is something else."""
    assert struct.unpack_from(">i", frame)[0] == CORRELATION_ID
    response = class_of(key, version, EntityType.response)
    start = 5 if response.__header_schema__.__flexible__ else 4
    entity, size = entity_reader(response)(frame[start:], 0)
    assert start + size == len(frame)
    return entity


def codes(entity: Any) -> set[int]:
    """Every error code in it, however deep, 0 as well."""
    found: set[int] = set()
    for field in fields(entity):
        value = getattr(entity, field.name)
        if field.metadata.get("kafka_type") == "error_code":
            found.add(int(value))
        for part in value if isinstance(value, tuple) else (value,):
            if is_dataclass(part):
                found |= codes(part)
    return found
