"""The answer to a request of Kafka's that nobody here serves, with its error in each place where a client looks for it.

| asked for | error |
|---|---|
| ACLs | SECURITY_DISABLED: there is no authorizer |
| delegation tokens | DELEGATION_TOKEN_AUTH_DISABLED |
| SASL, where the listener has none | ILLEGAL_SASL_STATE |
| anything else, or another version of what is served | UNSUPPORTED_VERSION |

A response that has an error code of its own has nothing else. Others have one for each thing that was asked about: a
topic, a partition, a group. They are filled by the names of their fields, which are mostly those of the request
(`_ITEMS` and `_ECHOED` have the exceptions). What requests between brokers look like kio does not know: LeaderAndIsr,
StopReplica, UpdateMetadata and ControlledShutdown have no answer here, and neither has what is no API at all.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from functools import cache
from typing import Any

from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial._introspect import (
    EntityField,
    EntityTupleField,
    FieldClass,
    classify_field,
    get_field_tag,
    get_schema_field_type,
    is_optional,
)

from strandline.protocol.errors import ErrorCode, RemoteProtocolError
from strandline.protocol.kafka.header import behind_tags
from strandline.protocol.kafka.primitives import frame_of
from strandline.protocol.kafka.schemas import NoSuchSchema, read_entity, request_class, response_class, write_entity

_CODES = {
    **dict.fromkeys((29, 30, 31), ErrorCode.SECURITY_DISABLED),
    **dict.fromkeys((38, 39, 40, 41), ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED),
    **dict.fromkeys((17, 36), ErrorCode.ILLEGAL_SASL_STATE),
}
"""By API key; UNSUPPORTED_VERSION where it is not here."""

_ITEMS = {
    "coordinators": ("coordinator_keys",),
    "filter_results": ("filters",),
    "groups": ("groups", "group_ids"),
    "partition_result": ("partitions",),
    "partitions": ("partitions", "partition_indexes"),
    "replica_election_results": ("topic_partitions",),
    "results": ("creations", "deletions", "upsertions", "groups_names", "topics", "dirs"),
    "results_by_partition": ("partitions",),
    "results_by_topic_v3_and_below": ("v3_and_below_topics",),
    "transaction_states": ("transactional_ids",),
}
"""Where the request has what an array of the response is about, if not by its name; one after the other."""

_ECHOED = {"topic_name": "name", "user": "name"}
"""What tells elements apart, and its name in the request if that is another one."""

_NAMES_OF_BARE_ITEMS = frozenset({"partition_index", "partition_id", "group_id", "transactional_id", "key"})
"""What tells elements apart whose request has nothing but that."""

MAX_ITEMS = 200
"""Of a request whose answer names them all: such answers are made in one step of the event loop."""
_ZEROS = {
    "string": "",
    "bytes": b"",
    "records": b"",
    "bool": False,
    "float64": 0.0,
    "timedelta_i32": datetime.timedelta(0),
    "timedelta_i64": datetime.timedelta(0),
    "datetime_i64": datetime.datetime.fromtimestamp(0, datetime.UTC),
}


def refusal(api_key: int, version: int, correlation_id: int, body: memoryview) -> bytes | None:
    """The whole frame that answers such a request; None: there is no answer, the connection is to be closed.

    `body`: what follows the client's id, tagged fields of the header included. It is read only where the answer has to
    name what it asked about; then None also stands for one that cannot be read or names too much."""
    try:
        response = response_class(api_key, version)
        answer = _Refusal(_CODES.get(api_key, ErrorCode.UNSUPPORTED_VERSION)).of(response, api_key, version, body)
    except (NoSuchSchema, RemoteProtocolError):
        return None
    return frame_of(correlation_id, response.__header_schema__.__flexible__, write_entity(answer))


class _Refusal:
    """Makes entities that say one error."""

    def __init__(self, code: ErrorCode) -> None:
        self._code = code

    def of(self, response: Any, api_key: int, version: int, body: memoryview) -> Any:
        if _has_code(response) or not _tells_codes(response):
            return self._filled(response, None)
        request = request_class(api_key, version)
        if request.__flexible__:
            body = behind_tags(body)
        return self._filled(response, read_entity(request, body, max_elements=MAX_ITEMS))

    def _filled(self, entity: Any, asked: Any) -> Any:
        """asked: the part of the request that it is about, None: nothing of it is told."""
        return entity(**{field.name: self._value(entity, field, kind, asked) for field, kind in _parts(entity)})

    def _value(self, entity: Any, field: Field[Any], kind: FieldClass, asked: Any) -> Any:
        if isinstance(kind, EntityTupleField):
            if asked is None or (_has_code(entity) and not hasattr(asked, field.name)):
                return None if is_optional(field) else ()
            return tuple(self._filled(kind.type_, item) for item in _items(asked, field.name))
        if isinstance(kind, EntityField):
            return None if is_optional(field) else self._filled(kind.type_, None)
        if _is_code(field):
            return KioErrorCode(self._code)
        if field.name == "error_message":
            return self._code.explanation
        echoed = _echo(field.name, asked)
        return _nothing(field, kind.is_array) if echoed is None else echoed


def _items(asked: Any, name: str) -> Iterator[Any]:
    """What an array of the response is to have an element for."""
    for source in _ITEMS.get(name, (name,)):
        for item in getattr(asked, source, None) or ():
            if source == "dirs":  # of partitions that are to move there
                yield from item.topics
            else:
                yield item


def _echo(name: str, asked: Any) -> Any:
    """None: the request says nothing of it."""
    if isinstance(asked, (str, int)):
        return asked if name in _NAMES_OF_BARE_ITEMS else None
    return getattr(asked, _ECHOED.get(name, name), None)


def _nothing(field: Field[Any], is_array: bool) -> Any:
    if field.default is not MISSING:
        return field.default
    if is_optional(field) and get_field_tag(field) is None:
        return None
    return () if is_array else _ZEROS.get(get_schema_field_type(field), 0)


def _is_code(field: Field[Any]) -> bool:
    return bool(field.metadata.get("kafka_type") == "error_code")


@cache
def _parts(entity: Any) -> list[tuple[Field[Any], FieldClass]]:
    return [(field, classify_field(field)) for field in fields(entity)]


@cache
def _has_code(entity: Any) -> bool:
    return any(map(_is_code, fields(entity)))


@cache
def _tells_codes(entity: Any) -> bool:
    """It has an error code, however deep."""
    parts = (kind.type_ for kind in map(classify_field, fields(entity)) if isinstance(kind, EntityTupleField))
    return _has_code(entity) or any(map(_tells_codes, parts))
