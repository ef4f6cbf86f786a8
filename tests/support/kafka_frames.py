"""What a client reads out of an answer of Kafka's dialect."""

from __future__ import annotations

import struct
from dataclasses import fields, is_dataclass
from typing import Any

from kio.serial import entity_reader
from kio.static.constants import EntityType

from strandline.testkit.kafka_client import CORRELATION_ID
from support.kafka_entities import class_of


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
