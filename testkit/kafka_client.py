"""A client that speaks Kafka's protocol by kio's schemas, on a connection of its caller's choice."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import MISSING
from dataclasses import fields as fields_of
from functools import cache, partial
from typing import Any

import trio

from strandline.protocol.api import ApiKey
from strandline.protocol.kafka.converter import _element, _is_struct, _nothing
from strandline.protocol.kafka.schemas import read_entity, request_class, response_class, write_entity
from strandline.runtime.network import Transport, TransportClosed
from strandline.testkit.raw_connection import RawConnection

CORRELATION_ID = 77


class KafkaClient(RawConnection):
    """One connection. Several tasks may ask at once: their requests are under way together, and are answered in their
    order. A task that was cancelled while it asked leaves a connection that can only be closed."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self._correlation_id = 0
        self._sending = trio.StrictFIFOLock()
        self._receiving = trio.StrictFIFOLock()

    async def ask(self, api_key: ApiKey, version: int, **fields: Any) -> Any:
        """The answer of a request with these fields. `topics` and the like are lists of dictionaries.
        TransportClosed: the connection ends first."""
        entity = request_class(api_key, version)
        body = write_entity(made(entity, fields))
        frame = await self.ask_raw(api_key, version, body, has_tags=entity.__flexible__)
        answer = response_class(api_key, version)
        tags = answer.__flexible__ and api_key is not ApiKey.API_VERSIONS
        return read_entity(answer, memoryview(frame[4 + tags :]))

    async def tell(self, api_key: ApiKey, version: int, **fields: Any) -> None:
        """As `ask`, what nobody answers: Produce with acks=0."""
        entity = request_class(api_key, version)
        body = write_entity(made(entity, fields))
        async with self._sending:
            await self.send(kafka_frame(api_key, version, body, flexible=entity.__flexible__))

    async def ask_raw(self, api_key: int, version: int, body: bytes, *, has_tags: bool = False) -> bytes:
        """The answer to any body, behind its length. TransportClosed: the connection ends first."""
        async with self._sending:
            self._correlation_id += 1
            number = self._correlation_id
            await self.send(kafka_frame(api_key, version, body, correlation_id=number, flexible=has_tags))
        async with self._receiving:
            frame = await self.frame()
        assert struct.unpack_from(">i", frame)[0] == number, "the answer is another request's"
        return frame

    async def frame(self) -> bytes:
        """The next one, behind its length. TransportClosed: the connection ends first."""
        found = await read_frame(self)
        if found is None:
            raise TransportClosed("the connection ended before its answer")
        return found


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
        flexible = request_class(key, version).__flexible__
    head = struct.pack(">hhih", key, version, correlation_id, len(client_id)) + client_id + (b"\0" if flexible else b"")
    return struct.pack(">i", len(head) + len(body)) + head + body


async def read_frame(connection: RawConnection) -> bytes | None:
    """What follows the length of the next answer; None when the connection ended before a whole one came."""
    while True:
        received = connection.received
        if len(received) >= 4:
            size = 4 + struct.unpack_from(">i", received)[0]
            if len(received) >= size:
                frame = bytes(received[4:size])
                del received[:size]
                return frame
        if not await connection.receive():
            return None


def made(entity: Any, fields: dict[str, Any]) -> Any:
    """One of kio's entities: what lists and dictionaries there are become tuples and entities, what is left out takes
    the schema's default."""
    values: dict[str, Any] = {}
    plan = _plan(entity)
    for name, (entity_of, is_array, make_default) in plan.items():
        if name not in fields:
            if make_default is not None:
                values[name] = make_default()
            continue
        value = fields[name]
        if is_array and value is not None:
            value = tuple(made(entity_of, part) for part in value) if entity_of is not None else tuple(value)
        values[name] = value
    unknown = fields.keys() - plan.keys()
    assert not unknown, f"{entity.__name__} {entity.__version__} has no {unknown}"
    return entity(**values)


@cache
def _plan(entity: Any) -> dict[str, tuple[Any, bool, Callable[[], Any] | None]]:
    """Field → the entity that it is or has many of (None: a plain value), whether it is an array, and what makes the
    value of one that is left out (None: the schema does)."""
    plan: dict[str, tuple[Any, bool, Callable[[], Any] | None]] = {}
    for field in fields_of(entity):
        element, is_array = _element(field.type)
        struct = element if _is_struct(element) else None
        make_default: Callable[[], Any] | None = None
        if field.default is MISSING:
            is_one = struct is not None and not is_array
            make_default = partial(made, struct, {}) if is_one else partial(_nothing, field)
        plan[field.name] = struct, is_array, make_default
    return plan
