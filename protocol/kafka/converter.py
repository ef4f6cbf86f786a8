"""From kio's entities to our messages and back, field by field, by their names.

Our messages have the names of Kafka's schema, so one rule serves every API and version:

| of the schema | kio's field | our field |
|---|---|---|
| a duration in ms | `session_timeout`, a timedelta | `session_timeout_ms`, an integer |
| an error code | a member of an enum | an integer |
| a uuid | a UUID, or None | 16 bytes |
| an array | a tuple | a list |
| a struct | a data class | a message |
| anything else | as it is | as it is |

A field that a version does not have takes our default on its way in, and is left out on its way out. What one side has
and the other has not, or has in another shape, stands in `differences`. How a class is converted is worked out once.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import timedelta
from functools import cache
from typing import Any, Union, get_args, get_origin
from uuid import UUID

import msgspec
from kio.schema.errors import ErrorCode as KioErrorCode

from strandline.protocol.errors import LocalProtocolError
from strandline.protocol.kafka.differences import READ, kio_error_code
from strandline.protocol.kafka.schemas import Entity, EntityClass
from strandline.protocol.messages.base import Message
from strandline.protocol.types import NO_TOPIC_ID

Value = Callable[[Any], Any]
"""Converts the value of one field."""

_MILLISECOND = timedelta(milliseconds=1)
_NONE_YET: Mapping[type, object] = {str: "", bytes: b"", bool: False, int: 0}
"""What a field of a response holds that we know nothing of, by its type."""


def to_message(message: type[Message], entity: Entity) -> Any:
    """The message of class `message` that `entity` is."""
    entity_class: EntityClass = type(entity)
    return _message_maker(message, entity_class)(entity)


def to_entity(entity: EntityClass, message: Message) -> Entity:
    """`message` as kio writes it. LocalProtocolError: a value has no place in that version."""
    try:
        return _entity_maker(entity, type(message))(message)
    except (TypeError, ValueError, OverflowError, AttributeError) as error:
        raise LocalProtocolError(f"{type(message).__name__} is no {entity.__name__}: {error!r}") from error


@cache
def _message_maker(message: type[Message], entity: EntityClass) -> Callable[[Entity], Any]:
    source = {field.name: field for field in fields(entity)}
    steps: list[tuple[str, Callable[[Entity], Any]]] = []
    for ours in msgspec.structs.fields(message):
        special = READ.get((message.__name__, ours.name))
        if special is not None:
            steps.append((ours.name, special))
        elif (theirs := source.get(ours.name) or source.get(ours.name.removesuffix("_ms"))) is not None:
            steps.append((ours.name, _getter(theirs.name, _to_ours(theirs, ours.type))))

    def make(found: Entity) -> Any:
        return message(**{name: get(found) for name, get in steps})

    return make


@cache
def _entity_maker(entity: EntityClass, message: type[Message]) -> Callable[[Message], Entity]:
    ours = {field.name: field for field in msgspec.structs.fields(message)}
    steps: list[tuple[str, Callable[[Message], Any]]] = []
    for theirs in fields(entity):
        is_duration = theirs.metadata.get("kafka_type", "").startswith("timedelta")
        name = f"{theirs.name}_ms" if is_duration else theirs.name
        if name in ours:
            steps.append((theirs.name, _getter(name, _to_theirs(theirs, ours[name].type))))
        elif theirs.default is MISSING:
            steps.append((theirs.name, _always(_nothing(theirs))))

    def make(message: Message) -> Entity:
        return entity(**{name: get(message) for name, get in steps})

    return make


def _getter(name: str, convert: Value | None) -> Callable[[Any], Any]:
    if convert is None:
        return lambda found: getattr(found, name)
    return lambda found: convert(getattr(found, name))


def _always(value: Any) -> Callable[[Any], Any]:
    return lambda found: value


# --- One value -----------------------------------------------------------------------------------------------------


def _to_ours(theirs: Field[Any], ours: Any) -> Value | None:
    """None: as it is."""
    element, is_array = _element(theirs.type)
    each: Value | None
    kafka_type = theirs.metadata.get("kafka_type", "")
    if _is_struct(element):
        each = _unless_none(_message_maker(_struct_in(ours), element))
    elif kafka_type.startswith("timedelta"):
        each = _to_ms
    elif kafka_type == "error_code":
        each = int
    elif kafka_type == "uuid":
        each = _bytes_of_uuid
    else:
        each = None
    return _array(each, list) if is_array else each


def _to_theirs(theirs: Field[Any], ours: Any) -> Value | None:
    """None: as it is."""
    element, is_array = _element(theirs.type)
    kafka_type = theirs.metadata.get("kafka_type", "")
    each: Value | None
    if _is_struct(element):
        default = None if theirs.default is MISSING else theirs.default
        each = _unless_none(_entity_maker(element, _struct_in(ours)), default)
    elif kafka_type.startswith("timedelta"):
        each = _of_ms
    elif kafka_type == "error_code":
        each = kio_error_code
    elif kafka_type == "uuid":
        each = _uuid_of_bytes
    elif kafka_type == "string" and not _is_nullable(_element_type(theirs.type)):
        each = _never_none
    else:
        each = None
    return _array(each, tuple) if is_array else each


def _array(each: Value | None, container: type) -> Value:
    if each is None:
        return lambda found: None if found is None else container(found)
    return lambda found: None if found is None else container([each(value) for value in found])


def _unless_none(make: Value, default: Any = None) -> Value:
    return lambda found: default if found is None else make(found)


def _to_ms(found: timedelta) -> int:
    return found // _MILLISECOND


def _of_ms(found: int) -> timedelta:
    return timedelta(milliseconds=found)


def _never_none(found: str | None) -> str:
    return found or ""


def _bytes_of_uuid(found: UUID | None) -> bytes:
    return NO_TOPIC_ID if found is None else found.bytes


def _uuid_of_bytes(found: bytes) -> UUID | None:
    return None if found == NO_TOPIC_ID else UUID(bytes=found)


# --- Types ---------------------------------------------------------------------------------------------------------


def _element_type(found: Any) -> Any:
    """Of an array its elements' type, None allowed or not; of anything else the type itself."""
    for part in get_args(found) if _is_nullable(found) else (found,):
        if get_origin(part) is tuple:
            return get_args(part)[0]
    return found


def _element(found: Any) -> tuple[Any, bool]:
    """(type of one value without None, whether there is an array of them)."""
    element = _element_type(found)
    is_array = element is not found
    if _is_nullable(element):
        element = next(part for part in get_args(element) if part is not type(None))
    return element, is_array


def _is_struct(found: Any) -> bool:
    return is_dataclass(found)


def _is_nullable(found: Any) -> bool:
    return get_origin(found) in (types.UnionType, Union) and type(None) in get_args(found)


def _struct_in(found: Any) -> type[Message]:
    """The message class within `list[X]`, `X | None`, `Annotated[list[X], …]`."""
    left = [found]
    while left:
        part = left.pop()
        if isinstance(part, type) and issubclass(part, Message):
            return part
        left.extend(get_args(part))
    raise LookupError(f"{found} has no message in it")


def _nothing(theirs: Field[Any]) -> Any:
    element, is_array = _element(theirs.type)
    if is_array:
        return ()
    if _is_nullable(theirs.type):
        return None
    kafka_type = theirs.metadata.get("kafka_type", "")
    if kafka_type.startswith("timedelta"):
        return timedelta(0)
    if kafka_type == "error_code":
        return KioErrorCode.none
    return next(value for kind, value in _NONE_YET.items() if issubclass(element, kind))
