"""Kafka's message schemas, as kio has them: the class of a request or a response, by API key and version.

All of kio's modules would take a second and tens of megabytes: each is imported when the first client needs it.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError

from strandline.protocol.errors import LocalProtocolError, RemoteProtocolError
from strandline.protocol.kafka.lengths import MAX_ELEMENTS, NO_LIMIT, checked

Entity = Any
"""An instance of one of kio's data classes, which share no base."""
EntityClass = Any
"""One of those classes."""


class NoSuchSchema(LookupError):
    """kio knows no such API, or not in that version."""


@cache
def request_class(api_key: int, version: int) -> EntityClass:
    """NoSuchSchema: see there."""
    return _entity_class(api_key, version, "request")


@cache
def response_class(api_key: int, version: int) -> EntityClass:
    """NoSuchSchema: see there."""
    return _entity_class(api_key, version, "response")


def _entity_class(api_key: int, version: int, kind: str) -> EntityClass:
    name = api_key_map.get(api_key)
    if name is None:
        raise NoSuchSchema(f"no API has the key {api_key}")
    path = f"kio.schema.{name}.v{version}.{kind}"
    try:
        module = import_module(path)
    except ModuleNotFoundError as error:
        raise NoSuchSchema(f"{name} has no version {version}") from error
    for entity in vars(module).values():
        if getattr(getattr(entity, "__type__", None), "name", None) == kind and entity.__module__ == path:
            found: EntityClass = entity
            return found
    raise NoSuchSchema(f"{path} has no {kind}")


def read_entity(
    entity: EntityClass,
    body: memoryview,
    *,
    ignores_rest: bool = False,
    max_elements: int = MAX_ELEMENTS,
    max_named: int = NO_LIMIT,
) -> Entity:
    """What `body` holds, all of it and nothing else, unless `ignores_rest`. RemoteProtocolError: it is none, or its
    arrays have more than `max_elements` together, or it names more than `max_named` topics and partitions."""
    try:
        body = checked(entity, body, max_elements, max_named).toreadonly()
        found, size_bytes = _reader(entity)(body, 0)
    except (SerialError, ValueError, OverflowError) as error:  # UnicodeDecodeError is a ValueError
        raise RemoteProtocolError(f"body is not a {_name(entity)}: {str(error)[:200]}") from None
    if size_bytes != len(body) and not ignores_rest:
        raise RemoteProtocolError(f"{len(body) - size_bytes} bytes follow a {_name(entity)}")
    return found


def write_entity(found: Entity) -> bytes:
    """LocalProtocolError: a value does not fit its place."""
    buffer = io.BytesIO()
    entity: EntityClass = type(found)
    try:
        _writer(entity)(buffer, found)
    except (SerialError, ValueError, TypeError, OverflowError, AttributeError) as error:
        raise LocalProtocolError(f"{_name(entity)} cannot be encoded: {error!r}") from error
    return buffer.getvalue()


def _name(entity: EntityClass) -> str:
    return f"{entity.__name__} of version {entity.__version__}"


@cache
def _reader(entity: EntityClass) -> Callable[[memoryview, int], tuple[Entity, int]]:
    reader: Callable[[memoryview, int], tuple[Entity, int]] = entity_reader(entity)
    return reader


@cache
def _writer(entity: EntityClass) -> Callable[[io.BytesIO, Entity], None]:
    writer: Callable[[io.BytesIO, Entity], None] = entity_writer(entity)
    return writer
