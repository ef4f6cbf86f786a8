"""A client that speaks Kafka's protocol by kio's schemas, on the connection of a test's choice."""

from __future__ import annotations

import struct
from dataclasses import MISSING
from dataclasses import fields as fields_of
from typing import Any

from strandline.protocol.api import ApiKey
from strandline.protocol.kafka.converter import _element, _is_struct, _nothing
from strandline.protocol.kafka.schemas import read_entity, request_class, response_class, write_entity
from strandline.runtime.network import Transport
from support.kafka_frames import kafka_frame, read_frame
from support.raw_client import RawClient


class KafkaClient(RawClient):
    """One connection; each request is answered before the next one is sent."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self._correlation_id = 0

    async def ask(self, api_key: ApiKey, version: int, **fields: Any) -> Any:
        """The answer of a request with these fields. `topics` and the like are lists of dictionaries."""
        entity = request_class(api_key, version)
        body = write_entity(made(entity, fields))
        frame = await self.ask_raw(api_key, version, body, has_tags=entity.__flexible__)
        answer = response_class(api_key, version)
        tags = answer.__flexible__ and api_key is not ApiKey.API_VERSIONS
        return read_entity(answer, memoryview(frame[4 + tags :]))

    async def ask_raw(self, api_key: int, version: int, body: bytes, *, has_tags: bool = False) -> bytes:
        """The answer to any body, behind its length. AssertionError: the connection ends first."""
        self._correlation_id += 1
        number = self._correlation_id
        await self.send(kafka_frame(api_key, version, body, correlation_id=number, flexible=has_tags))
        frame = await self.frame()
        assert struct.unpack_from(">i", frame)[0] == self._correlation_id
        return frame

    async def frame(self) -> bytes:
        """The next one, behind its length."""
        found = await read_frame(self)
        assert found is not None, "the connection ended before its answer"
        return found


def made(entity: Any, fields: dict[str, Any]) -> Any:
    """One of kio's entities: what lists and dictionaries there are become tuples and entities, what is left out takes
    the schema's default."""
    values: dict[str, Any] = {}
    for field in fields_of(entity):
        element, is_array = _element(field.type)
        if field.name not in fields:
            if field.default is MISSING:
                values[field.name] = _nothing(field) if not _is_struct(element) or is_array else made(element, {})
            continue
        value = fields[field.name]
        if is_array and value is not None:
            value = tuple(made(element, part) if _is_struct(element) else part for part in value)
        values[field.name] = value
    unknown = fields.keys() - {field.name for field in fields_of(entity)}
    assert not unknown, f"{entity.__name__} {entity.__version__} has no {unknown}"
    return entity(**values)
