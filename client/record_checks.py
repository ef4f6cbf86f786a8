"""What a program may give to `send`: checked and brought into one form where it is given, in the program's own thread
or task, so that a mistake is raised there and not found in a future that nobody looks at.

Keys and values are bytes, or what can be copied into bytes (a bytearray, a memoryview), or None; a serializer makes
them of anything else. What is wrong raises InvalidRecordValue, which is a TypeError, or InvalidTopic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple, NoReturn

from strandline.client.accumulator import FullRecord, Header, ToSend
from strandline.client.errors import InvalidRecordValue, InvalidTopic
from strandline.client.settings import Serializer
from strandline.protocol.errors import ErrorCode
from strandline.protocol.topic_name import InvalidTopicName, check_topic_name

Headers = Mapping[str, bytes | None] | Iterable[Header]
"""As a program gives them: a dict, or pairs, in which a name may come several times."""

MAX_TIMESTAMP_MS = 2**63 - 1

_BYTES = {bytes, type(None)}
_INT = {int}
_SEQUENCES = {list, tuple}


class Serializers(NamedTuple):
    """What makes bytes of keys and values; None: they are bytes already."""

    key: Serializer | None
    value: Serializer | None

    def key_and_value(self, key: Any, value: Any) -> tuple[bytes | None, bytes | None]:
        """Of one record, as bytes. InvalidRecordValue, and what a serializer raises."""
        if key is not None:
            key = as_bytes(key if self.key is None else self.key(key), "key")
        if value is not None:
            value = as_bytes(value if self.value is None else self.value(value), "value")
        return key, value

    def records(self, records: Sequence[Any]) -> Sequence[ToSend]:
        """Of many, (key, value) or (key, value, headers, timestamp_ms), as bytes: the same list where nothing is to be
        changed. InvalidRecordValue names the first that is wrong; and what a serializer raises."""
        if not records or (self.key is None and self.value is None and _are_as_needed(records)):
            return records
        full = _fields_of(records[0], 0) == 4
        made: list[Any] = []
        for index, record in enumerate(records):
            if (_fields_of(record, index) == 4) is not full:
                raise InvalidRecordValue(f"record {index} is of another kind than those before: give all of them alike")
            try:
                pair = self.key_and_value(record[0], record[1])
                made.append((*pair, headers_of(record[2]), timestamp_of(record[3])) if full else pair)
            except InvalidRecordValue as error:
                raise InvalidRecordValue(f"record {index}: {error}") from None
        return made


def as_bytes(given: Any, what: str) -> bytes | None:
    """A copy where it is not bytes already: the program may change its own. InvalidRecordValue."""
    if given is None or type(given) is bytes:
        return given
    if isinstance(given, str):
        raise InvalidRecordValue(
            f"the {what} is a str, {given[:40]!r}: give its .encode(), or the producer a {what}_serializer"
        )
    try:
        return bytes(memoryview(given))
    except TypeError:
        raise InvalidRecordValue(
            f"the {what} is {_shown(given)}: give bytes or None, or the producer a {what}_serializer"
        ) from None


def headers_of(headers: Headers | None) -> tuple[Header, ...]:
    """InvalidRecordValue."""
    if not headers:
        return ()
    try:
        pairs = tuple(headers.items() if isinstance(headers, Mapping) else headers)
        return tuple((_header_name(name), _header_value(name, value)) for name, value in pairs)
    except (TypeError, ValueError) as error:
        if isinstance(error, InvalidRecordValue):
            raise
        raise InvalidRecordValue(
            f"the headers are {headers!r:.60}: give a dict of names and bytes, or pairs of them"
        ) from None


def are_same(given: Headers | None, known: tuple[Header, ...]) -> bool:
    """Whether these are the headers of the record before, which need not be checked again."""
    if isinstance(given, dict):
        return tuple(given.items()) == known
    return isinstance(given, list | tuple) and tuple(given) == known


def timestamp_of(given: Any) -> int:
    """InvalidRecordValue."""
    if type(given) is int or (isinstance(given, int) and not isinstance(given, bool)):
        if -1 <= given <= MAX_TIMESTAMP_MS:
            return int(given)
        raise InvalidRecordValue(f"timestamp_ms is {given}: milliseconds since 1970 are 0 to {MAX_TIMESTAMP_MS}")
    raise InvalidRecordValue(f"timestamp_ms is {_shown(given)}: give whole milliseconds since 1970, as an int")


def topic_of(given: Any) -> str:
    """InvalidRecordValue, InvalidTopic."""
    if not isinstance(given, str):
        raise InvalidRecordValue(f"the topic is {_shown(given)}: give its name as a str")
    _check(given)
    return given


def partition_of(given: Any) -> int | None:
    """InvalidRecordValue."""
    if given is None or (isinstance(given, int) and not isinstance(given, bool)):
        return given
    raise InvalidRecordValue(f"the partition is {_shown(given)}: give an int or None")


@lru_cache(maxsize=1024)
def _check(name: str) -> None:
    try:
        check_topic_name(name)
    except InvalidTopicName as error:
        raise InvalidTopic(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from None


def _header_name(name: Any) -> str:
    if not isinstance(name, str):
        raise InvalidRecordValue(f"the name of a header is {_shown(name)}: give a str")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InvalidRecordValue(f"the header name {name!a:.40} cannot be encoded as UTF-8") from None
    return name


def _header_value(name: str, value: Any) -> bytes | None:
    if isinstance(value, str):
        raise InvalidRecordValue(f"the value of header {name!r} is a str: give its .encode()")
    try:
        return as_bytes(value, "value")
    except InvalidRecordValue:
        raise InvalidRecordValue(f"the value of header {name!r} is {_shown(value)}: give bytes or None") from None


def _shown(given: Any) -> str:
    return f"{given!r:.40} ({type(given).__name__})"


def _are_as_needed(records: Sequence[Any]) -> bool:
    """All are pairs of bytes or None, or all have headers and timestamps that are well; by columns, since there may be
    a million of them."""
    try:
        lengths = set(map(len, records))
        if lengths == {2}:
            return set(map(type, chain.from_iterable(records))) <= _BYTES
        if lengths != {4}:
            return False
        keys, values, headers, stamps = zip(*records, strict=True)
    except TypeError:
        return False
    return (
        set(map(type, keys)) | set(map(type, values)) <= _BYTES
        and set(map(type, stamps)) == _INT
        and min(stamps) >= -1
        and max(stamps) <= MAX_TIMESTAMP_MS
        and set(map(type, headers)) <= _SEQUENCES
        and all(_are_headers(each) for each in headers if each)
    )


def _are_headers(headers: Any) -> bool:
    try:
        return headers_of(headers) == tuple(headers)
    except InvalidRecordValue:
        return False


def _fields_of(record: Any, index: int) -> int:
    try:
        count = len(record)
    except TypeError:
        count = -1
    if count not in (2, 4) or not isinstance(record, Sequence) or isinstance(record, str | bytes):
        _refuse_shape(record, index)
    return count


def _refuse_shape(record: Any, index: int) -> NoReturn:
    raise InvalidRecordValue(
        f"record {index} is {record!r:.60}: give (key, value) or (key, value, headers, timestamp_ms)"
    )


__all__ = [
    "FullRecord",
    "Headers",
    "Serializers",
    "as_bytes",
    "headers_of",
    "partition_of",
    "timestamp_of",
    "topic_of",
]
