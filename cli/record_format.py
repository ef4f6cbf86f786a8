r"""How `strandline consume` prints a record: console lines, a `%` template, or one JSON object. Pure.

Verbs of a template (kcat's and rpk's):

    %v %s  value             %V %S  its length in bytes     %R  the same as four bytes, big endian (-1: null)
    %k     key               %K     its length in bytes
    %t     topic             %p     partition               %o  offset
    %T %d  timestamp in ms   %d{strftime[%F %T]}  the same in UTC as text
    %h     headers as k=v,k=v     %h{%k=%v;}  each header by a template of its own     %H  their number
    %e     leader epoch      %i     number of this record, from 1
    %%     a percent sign    \n \t \r \\ \0 \xNN
    %v{hex} %v{base64} %v{json}   also for %s and %k
"""

from __future__ import annotations

import base64
import datetime
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol

Header = tuple[str, bytes | None]
Writer = Callable[["PrintableRecord", int], bytes]


class PrintableRecord(Protocol):
    """What is used of a consumed record."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None

    @property
    def headers(self) -> Sequence[Header]: ...


class InvalidFormat(ValueError):
    """The template has a verb or an escape that does not exist; the message shows it."""


_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "\\": b"\\", "0": b"\0"}
_PIECE = re.compile(r"%(?P<verb>.)|\\x(?P<hex>[0-9a-fA-F]{2})|\\(?P<escape>.)|[^%\\]+", re.DOTALL)


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _header_text(record: PrintableRecord) -> bytes:
    return b",".join(key.encode() + b"=" + (value or b"") for key, value in record.headers)


def _leader_epoch(record: PrintableRecord, count: int) -> bytes:
    epoch = getattr(record, "leader_epoch", None)
    return b"%d" % (-1 if epoch is None else epoch)


_VERBS: dict[str, Writer] = {
    "v": lambda record, count: record.value or b"",
    "s": lambda record, count: record.value or b"",
    "k": lambda record, count: record.key or b"",
    "V": lambda record, count: b"%d" % _length(record.value),
    "S": lambda record, count: b"%d" % _length(record.value),
    "K": lambda record, count: b"%d" % _length(record.key),
    "R": lambda record, count: _length(record.value).to_bytes(4, "big", signed=True),
    "t": lambda record, count: record.topic.encode(),
    "p": lambda record, count: b"%d" % record.partition,
    "o": lambda record, count: b"%d" % record.offset,
    "T": lambda record, count: b"%d" % record.timestamp_ms,
    "d": lambda record, count: b"%d" % record.timestamp_ms,
    "h": lambda record, count: _header_text(record),
    "H": lambda record, count: b"%d" % len(record.headers),
    "e": _leader_epoch,
    "i": lambda record, count: b"%d" % count,
    "%": lambda record, count: b"%",
}
_BYTES_VERBS = "vsk"
_ENCODINGS: dict[str, Callable[[bytes], bytes]] = {
    "hex": lambda data: data.hex().encode(),
    "base64": base64.b64encode,
    "json": lambda data: json.dumps(data.decode("utf-8", "replace"), ensure_ascii=False).encode(),
}


def compile_format(template: str) -> Writer:
    """A function `(record, count) -> bytes` for the template. Raises InvalidFormat."""
    pieces: list[Writer | bytes] = []
    position = 0
    while position < len(template):
        match = _PIECE.match(template, position)
        if match is None:
            raise InvalidFormat(f"format '{template}' ends in the middle of '{template[position:]}'; write %% or \\\\")
        position = match.end()
        if match["verb"] is not None:
            modifier, position = _modifier(template, position)
            pieces.append(_verb(match["verb"], modifier, template))
        elif match["hex"] is not None:
            pieces.append(bytes([int(match["hex"], 16)]))
        elif match["escape"] is not None:
            if match["escape"] not in _ESCAPES:
                raise InvalidFormat(f"format '{template}': no escape \\{match['escape']}; write \\\\ for a backslash")
            pieces.append(_ESCAPES[match["escape"]])
        else:
            pieces.append(match[0].encode("utf-8", "surrogateescape"))

    def write(record: PrintableRecord, count: int) -> bytes:
        return b"".join([piece if isinstance(piece, bytes) else piece(record, count) for piece in pieces])

    return write


def _modifier(template: str, position: int) -> tuple[str | None, int]:
    """The text within braces that follows a verb (braces inside it nest), and where it ends."""
    if template[position : position + 1] != "{":
        return None, position
    depth = 0
    for end in range(position, len(template)):
        depth += {"{": 1, "}": -1}.get(template[end], 0)
        if depth == 0:
            return template[position + 1 : end], end + 1
    raise InvalidFormat(f"format '{template}': the brace at '{template[position:]}' is not closed")


def _verb(verb: str, modifier: str | None, template: str) -> Writer:
    if verb not in _VERBS:
        raise InvalidFormat(f"format '{template}': no verb %{verb}; there are %{' %'.join(_VERBS)}")
    plain = _VERBS[verb]
    if modifier is None:
        return plain
    if verb in _BYTES_VERBS and modifier in _ENCODINGS:
        encode = _ENCODINGS[modifier]
        return lambda record, count: encode(plain(record, count))
    if verb == "d" and (match := re.fullmatch(r"strftime\[(.*)\]", modifier, re.DOTALL)):
        pattern = match[1]
        return lambda record, count: _utc(record.timestamp_ms).strftime(pattern).encode()
    if verb == "h":
        return _headers_by(compile_header_format(modifier))
    raise InvalidFormat(
        f"format '{template}': %{verb}{{{modifier}}} is not known; %v and %k take hex, base64 or json, %d takes "
        "strftime[…], %h a template"
    )


def compile_header_format(template: str) -> Callable[[str, bytes | None], bytes]:
    """The template within `%h{…}`: only %k and %v, and the escapes."""
    if unknown := [verb for verb in re.findall(r"%(.)", template) if verb not in "kv%"]:
        raise InvalidFormat(f"format of headers '{template}': no verb %{unknown[0]}; there are %k and %v")
    write = compile_format(template)

    class Shown:
        """A header in the clothes of a record."""

        def __init__(self, key: bytes, value: bytes | None) -> None:
            self.key, self.value = key, value

    def show(key: str, value: bytes | None) -> bytes:
        shown: Any = Shown(key.encode(), value)
        return write(shown, 0)

    return show


def _headers_by(show: Callable[[str, bytes | None], bytes]) -> Writer:
    return lambda record, count: b"".join(show(key, value) for key, value in record.headers)


def _utc(timestamp_ms: int) -> datetime.datetime:
    try:
        return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return datetime.datetime.max.replace(tzinfo=datetime.UTC)


def console_format(
    *,
    timestamp: bool = False,
    partition: bool = False,
    offset: bool = False,
    headers: bool = False,
    key: bool = False,
    separator: bytes = b"\t",
    null: bytes = b"null",
) -> Writer:
    """Kafka's console consumer: time, partition, offset, headers and key as far as asked, then the value."""

    def write(record: PrintableRecord, count: int) -> bytes:
        fields: list[bytes] = []
        if timestamp:
            fields.append(b"%s:%d" % (_timestamp_name(record).encode(), record.timestamp_ms))
        if partition:
            fields.append(b"Partition:%d" % record.partition)
        if offset:
            fields.append(b"Offset:%d" % record.offset)
        if headers:
            shown = [name.encode() + b":" + (null if value is None else value) for name, value in record.headers]
            fields.append(b",".join(shown) if shown else b"NO_HEADERS")
        if key:
            fields.append(null if record.key is None else record.key)
        fields.append(null if record.value is None else record.value)
        return separator.join(fields) + b"\n"

    return write


def _timestamp_name(record: PrintableRecord) -> str:
    if record.timestamp_ms < 0:
        return "NO_TIMESTAMP"
    return "LogAppendTime" if getattr(record, "timestamp_type", 0) == 1 else "CreateTime"


def json_format() -> Writer:
    """One JSON object a line, kcat's envelope. Bytes that are not UTF-8 are base64, and `key_encoding` or
    `payload_encoding` says so; headers are a list of {key, value}, since their names may repeat."""

    def write(record: PrintableRecord, count: int) -> bytes:
        fields: dict[str, object] = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "tstype": "logappend" if getattr(record, "timestamp_type", 0) == 1 else "create",
            "ts": record.timestamp_ms,
            "headers": [_json_header(name, value) for name, value in record.headers],
        }
        fields.update(_json_bytes("key", record.key))
        fields.update(_json_bytes("payload", record.value))
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"

    return write


def _json_header(name: str, value: bytes | None) -> dict[str, object]:
    return {"key": name, **_json_bytes("value", value)}


def _json_bytes(field: str, data: bytes | None) -> dict[str, object]:
    if data is None:
        return {field: None}
    try:
        return {field: data.decode()}
    except UnicodeDecodeError:
        return {field: base64.b64encode(data).decode(), f"{field}_encoding": "base64"}
