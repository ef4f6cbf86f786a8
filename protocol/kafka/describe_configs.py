"""The answer to DescribeConfigs in Kafka's protocol, versions 1 to 4, by hand: tools ask about all topics at once, with
some thirty keys each, which kio takes a second for (1000 topics; by hand a tenth).

```
response  int32 throttle_time_ms | array of results | tagged
result    int16 error_code | string? error_message | int8 resource_type | string resource_name | array of keys | tagged
key       string name | string? value | bool read_only | int8 config_source | bool is_sensitive | array of synonyms
          | [3+ int8 config_type | string? documentation] | tagged
synonym   string name | string? value | int8 source | tagged
```
Version 4 is flexible (`primitives`). A value that stands somewhere and is longer than Kafka's strings may be is told as
secrets are, by its key alone; else nothing could be told of all that was asked for with it. Source:
DescribeConfigsResponse.json of Kafka 3.9.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from strandline.protocol.kafka.primitives import (
    DOES_NOT_FIT,
    INT16,
    INT32,
    MAX_STRING_BYTES,
    NO_TAGS,
    frame_of,
    length_of,
    nullable_string,
    string,
    unwritable,
)
from strandline.protocol.messages.configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

FIRST_FLEXIBLE = 4
FIRST_WITH_TYPES = 3

_INT8 = struct.Struct(">b")
_FLAGS = struct.Struct(">?b?")
"""read_only, config_source, is_sensitive."""

TOO_LONG = f"Its value has more than {MAX_STRING_BYTES:,} bytes and cannot be told: set a shorter one."
"""In place of the documentation, also where nobody asked for that."""

_known = lru_cache(2048)(nullable_string)
"""Of names and texts of the table of keys."""


def encode_describe_configs_response(version: int, correlation_id: int, message: DescribeConfigsResponse) -> bytes:
    """The whole frame, with its length and header. LocalProtocolError: a value does not fit its place."""
    flexible = version >= FIRST_FLEXIBLE
    out = [INT32.pack(message.throttle_time_ms), length_of(len(message.results), flexible)]
    try:
        for result in message.results:
            _add_result(out, version, result)
        if flexible:
            out.append(NO_TAGS)
        return frame_of(correlation_id, flexible, b"".join(out))
    except DOES_NOT_FIT as error:
        raise unwritable(message, error) from error


def _add_result(out: list[bytes], version: int, result: DescribeConfigsResult) -> None:
    flexible = version >= FIRST_FLEXIBLE
    out += (
        INT16.pack(result.error_code),
        nullable_string(result.error_message, flexible),
        _INT8.pack(result.resource_type),
        string(result.resource_name, flexible),
        length_of(len(result.configs), flexible),
    )
    for key in result.configs:
        _add_key(out, version, key)
    if flexible:
        out.append(NO_TAGS)


def _add_key(out: list[bytes], version: int, key: DescribeConfigsResourceResult) -> None:
    flexible = version >= FIRST_FLEXIBLE
    is_told = _fits(key.value)
    value, documentation = (key.value, key.documentation) if is_told else (None, TOO_LONG)
    out += (
        _known(key.name, flexible),
        nullable_string(value, flexible),
        _FLAGS.pack(key.read_only, key.config_source, key.is_sensitive or not is_told),
        length_of(len(key.synonyms), flexible),
    )
    for synonym in key.synonyms:
        _add_synonym(out, flexible, synonym)
    if version >= FIRST_WITH_TYPES:
        out += (_INT8.pack(key.config_type), _known(documentation, flexible))
    if flexible:
        out.append(NO_TAGS)


def _add_synonym(out: list[bytes], flexible: bool, synonym: DescribeConfigsSynonym) -> None:
    value = synonym.value if _fits(synonym.value) else None
    out += (_known(synonym.name, flexible), nullable_string(value, flexible), _INT8.pack(synonym.source))
    if flexible:
        out.append(NO_TAGS)


def _fits(value: str | None) -> bool:
    return value is None or len(value) <= MAX_STRING_BYTES // 4 or len(value.encode()) <= MAX_STRING_BYTES
