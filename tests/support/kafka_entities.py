"""Instances of kio's classes, drawn by a seed: every field has a value, arrays have some elements."""

from __future__ import annotations

import datetime
import io
import random
import types
import uuid
from dataclasses import fields, is_dataclass
from pkgutil import resolve_name
from typing import Any, Union, get_args, get_origin

from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_writer
from kio.static.constants import EntityType

ALL_VERSIONS = [(key, version) for key, name in api_key_map.items() for version in schema_name_map[name]]
"""(API key, version) of all that kio knows."""


def class_of(key: int, version: int, kind: EntityType = EntityType.request) -> Any:
    return resolve_name(schema_name_map[api_key_map[key]][version][kind])


def draw(entity: Any, rng: random.Random, nulls: float = 0.2) -> Any:
    """nulls: how often a field that may be null is."""
    return entity(**{field.name: _value(field.type, field.metadata, rng, nulls) for field in fields(entity)})


def written(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def _value(found: Any, metadata: Any, rng: random.Random, nulls: float) -> Any:
    if get_origin(found) in (types.UnionType, Union):
        if rng.random() < nulls:
            return None
        [found] = [part for part in get_args(found) if part is not type(None)]
    if get_origin(found) is tuple:
        return tuple(_value(get_args(found)[0], metadata, rng, nulls) for _ in range(rng.randrange(1, 3)))
    if is_dataclass(found):
        return draw(found, rng, nulls)
    kind = metadata["kafka_type"]
    if kind.startswith(("int", "uint")):
        return rng.getrandbits(int(kind.partition("int")[2]) - 1)
    return {
        "bool": lambda: rng.random() < 0.5,
        "string": lambda: "é" * rng.choice((0, 1, 3, 70)),
        "bytes": lambda: rng.randbytes(rng.choice((0, 3, 130))),
        "records": lambda: rng.randbytes(5),
        "uuid": lambda: uuid.UUID(bytes=rng.randbytes(16), version=4),
        "error_code": lambda: rng.choice(list(ErrorCode)),
        "float64": rng.random,
        "timedelta_i32": lambda: datetime.timedelta(milliseconds=rng.getrandbits(31)),
        "timedelta_i64": lambda: datetime.timedelta(milliseconds=rng.getrandbits(31)),
        "datetime_i64": lambda: datetime.datetime.fromtimestamp(rng.getrandbits(30), datetime.UTC),
    }[kind]()
