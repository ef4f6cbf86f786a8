r"""How `strandline consume` prints records: console lines, a `%` template, or one JSON object each. Pure.

Verbs of a template (kcat's and rpk's), which `strandline produce` reads, too (`input_format`):

    %v %s  value             %V %S  its length in bytes     %R  the same as four bytes, big endian (-1: null)
    %k     key               %K     its length in bytes
    %t     topic             %p     partition               %o  offset
    %T %d  timestamp in ms   %d{strftime[%F %T]}  the same in UTC as text
    %h     headers as k=v,k=v     %h{%k=%v;}  each header by a template of its own     %H  their number
    %e     leader epoch      %i     number of this record, from 1
    %%     a percent sign    \n \t \r \\ \0 \xNN
    %v{hex} %v{base64} %v{json}   also for %s and %k; in JSON a byte that is no UTF-8 is \udcXX

Records come as columns: of some thousand of them each piece of a template is one list, and what is printed is joined at
once. That is several times as fast as record by record.
"""

from __future__ import annotations

import base64
import datetime
import json
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from typing import NamedTuple

from strandline.cli.escapes import ESCAPES

Header = tuple[str, bytes | None]


class Rows(NamedTuple):
    """Records of one partition, one list per field. `first_count`: which of all that are printed the first one is, from
    1 on. `timestamp_type` 0: CreateTime, 1: LogAppendTime."""

    topic: str
    partition: int
    leader_epoch: int
    timestamp_type: int
    offsets: Sequence[int]
    timestamps_ms: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Sequence[Header]]
    first_count: int = 1

    def cut(self, start: int, stop: int) -> Rows:
        """Those at these places."""
        if start == 0 and stop >= len(self.offsets):
            return self
        part = slice(start, stop)
        return self._replace(
            offsets=self.offsets[part],
            timestamps_ms=self.timestamps_ms[part],
            keys=self.keys[part],
            values=self.values[part],
            headers=self.headers[part],
            first_count=self.first_count + start,
        )


Writer = Callable[[Rows], bytes]
Column = Callable[[Rows], Iterable[bytes]]
"""What a piece of a template is for each record."""


class InvalidFormat(ValueError):
    """The template has a verb or an escape that does not exist; the message shows it."""


_PIECE = re.compile(r"%(?P<verb>.)|\\x(?P<hex>[0-9a-fA-F]{2})|\\(?P<escape>.)|[^%\\]+", re.DOTALL)


class Piece(NamedTuple):
    """Of a template: literal bytes, or a verb with what stands in braces behind it."""

    literal: bytes
    verb: str = ""
    modifier: str | None = None


VERBS = "vskVSKRtpoTdhHei%"
BYTES_VERBS = "vsk"


def pieces_of(template: str) -> list[Piece]:
    """The template in its pieces; literals that follow each other are one. Raises InvalidFormat."""
    pieces: list[Piece] = []
    position = 0
    while position < len(template):
        match = _PIECE.match(template, position)
        if match is None:
            raise InvalidFormat(f"format '{template}' ends in the middle of '{template[position:]}'; write %% or \\\\")
        position = match.end()
        if (verb := match["verb"]) is not None:
            modifier, position = _modifier(template, position)
            if verb not in VERBS:
                raise InvalidFormat(f"format '{template}': no verb %{verb}; there are %{' %'.join(VERBS)}")
            if verb == "%":
                literal = b"%" if modifier is None else b"%" + f"{{{modifier}}}".encode("utf-8", "surrogateescape")
            else:
                pieces.append(Piece(b"", verb, modifier))
                continue
        elif match["hex"] is not None:
            literal = bytes([int(match["hex"], 16)])
        elif match["escape"] is not None:
            if match["escape"] not in ESCAPES:
                raise InvalidFormat(f"format '{template}': no escape \\{match['escape']}; write \\\\ for a backslash")
            literal = ESCAPES[match["escape"]]
        else:
            literal = match[0].encode("utf-8", "surrogateescape")
        if pieces and not pieces[-1].verb:
            literal = pieces.pop().literal + literal
        pieces.append(Piece(literal))
    return pieces


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


def unknown_modifier(piece: Piece, template: str) -> InvalidFormat:
    return InvalidFormat(
        f"format '{template}': %{piece.verb}{{{piece.modifier}}} is not known; %v and %k take hex, base64 or json, %d "
        "takes strftime[…], %h a template"
    )


def time_pattern(piece: Piece) -> str | None:
    """What stands within `%d{strftime[…]}`; None where that is not what the piece is."""
    match = re.fullmatch(r"strftime\[(.*)\]", piece.modifier or "", re.DOTALL)
    return match[1] if piece.verb == "d" and match is not None else None


def pieces_of_headers(template: str) -> list[Piece]:
    """Of the template within `%h{…}`. Raises InvalidFormat for verbs that a header does not have."""
    pieces = pieces_of(template)
    for piece in pieces:
        if piece.verb and piece.verb not in "kvKV":
            raise InvalidFormat(f"format of headers '{template}': no verb %{piece.verb}; there are %k %v %K %V")
    return pieces


# --- Templates ---


def compile_format(template: str, null: bytes = b"") -> Writer:
    """What writes records by the template. null: how a key or value is shown that is null. Raises InvalidFormat."""
    return _writer([_column(piece, template, null) for piece in pieces_of(template)])


def _writer(columns: Sequence[Column]) -> Writer:
    def write(rows: Rows) -> bytes:
        return b"".join(chain.from_iterable(zip(*[column(rows) for column in columns], strict=True)))

    def write_lines(rows: Rows) -> bytes:
        """The most frequent kind: one field, and the same behind each."""
        return ending.join([*columns[0](rows), b""])

    ending = columns[-1].literal if columns and isinstance(columns[-1], _Literal) else b""
    return write_lines if len(columns) == 2 and ending else write


class _Literal:
    """The same bytes for each record."""

    def __init__(self, literal: bytes) -> None:
        self.literal = literal

    def __call__(self, rows: Rows) -> Iterable[bytes]:
        return repeat(self.literal, len(rows.offsets))


def _column(piece: Piece, template: str, null: bytes) -> Column:
    verb, modifier = piece.verb, piece.modifier
    if not verb:
        return _Literal(piece.literal)
    if modifier is None:
        return _plain_column(verb, null)
    if verb in BYTES_VERBS and modifier in _ENCODINGS:
        encode, field = _ENCODINGS[modifier], _bytes_of(verb)
        shown_null = b"null" if modifier == "json" else null
        return lambda rows: [shown_null if each is None else encode(each) for each in field(rows)]
    if (pattern := time_pattern(piece)) is not None:
        return lambda rows: [_utc(each).strftime(pattern).encode() for each in rows.timestamps_ms]
    if verb == "h":
        return _headers_by([_column(each, modifier, null) for each in pieces_of_headers(modifier)])
    raise unknown_modifier(piece, template)


def _plain_column(verb: str, null: bytes) -> Column:
    if verb in BYTES_VERBS:
        field = _bytes_of(verb)
        return lambda rows: shown(field(rows), null)
    if verb in "VSK":
        field = _bytes_of("k" if verb == "K" else "v")
        return lambda rows: [b"-1" if each is None else b"%d" % len(each) for each in field(rows)]
    if verb == "h":
        return lambda rows: [
            b",".join([name.encode() + b"=" + (null if value is None else value) for name, value in headers])
            for headers in rows.headers
        ]
    return _COLUMNS[verb]


def _bytes_of(verb: str) -> Callable[[Rows], Sequence[bytes | None]]:
    return (lambda rows: rows.keys) if verb == "k" else (lambda rows: rows.values)


def _big_endian_length(data: bytes | None) -> bytes:
    return (-1 if data is None else len(data)).to_bytes(4, "big", signed=True)


_COLUMNS: dict[str, Column] = {
    "R": lambda rows: map(_big_endian_length, rows.values),
    "t": lambda rows: repeat(rows.topic.encode(), len(rows.offsets)),
    "p": lambda rows: repeat(b"%d" % rows.partition, len(rows.offsets)),
    "o": lambda rows: [b"%d" % each for each in rows.offsets],
    "T": lambda rows: [b"%d" % each for each in rows.timestamps_ms],
    "d": lambda rows: [b"%d" % each for each in rows.timestamps_ms],
    "H": lambda rows: [b"%d" % len(each) for each in rows.headers],
    "e": lambda rows: repeat(b"%d" % rows.leader_epoch, len(rows.offsets)),
    "i": lambda rows: [b"%d" % each for each in range(rows.first_count, rows.first_count + len(rows.offsets))],
}


def _json_text(data: bytes) -> bytes:
    """A text in JSON. A byte that is no UTF-8 is `\\udcXX`, as in Python (PEP 383), so that it can be read back."""
    try:
        return json.dumps(data.decode(), ensure_ascii=False).encode()
    except UnicodeDecodeError:
        return json.dumps(data.decode("utf-8", "surrogateescape")).encode()


_ENCODINGS: dict[str, Callable[[bytes], bytes]] = {
    "hex": lambda data: data.hex().encode(),
    "base64": base64.b64encode,
    "json": _json_text,
}


def shown(column: Sequence[bytes | None], null: bytes) -> list[bytes]:
    """With `null` in place of what is null."""
    return [null if each is None else each for each in column] if None in column else column  # type: ignore[return-value]


def _headers_by(columns: Sequence[Column]) -> Column:
    """Each header by those columns, which see it as a record with its name as the key."""
    write = _writer(columns)

    def show(headers: Sequence[Header]) -> bytes:
        if not headers:
            return b""
        nothing = [0] * len(headers)
        names, values = [name.encode() for name, _ in headers], [value for _, value in headers]
        return write(Rows("", 0, 0, 0, nothing, nothing, names, values, ()))

    return lambda rows: map(show, rows.headers)


def _utc(timestamp_ms: int) -> datetime.datetime:
    try:
        return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return datetime.datetime.max.replace(tzinfo=datetime.UTC)


# --- Console lines and JSON ---


def console_format(
    *,
    timestamp: bool = False,
    partition: bool = False,
    offset: bool = False,
    headers: bool = False,
    key: bool = False,
    value: bool = True,
    separator: bytes = b"\t",
    ending: bytes = b"\n",
    null: bytes = b"null",
) -> Writer:
    """Kafka's console consumer: time, partition, offset, headers, key and value as far as asked."""
    fields: list[Column] = []
    if timestamp:
        fields.append(_timestamps)
    if partition:
        fields.append(lambda rows: repeat(b"Partition:%d" % rows.partition, len(rows.offsets)))
    if offset:
        fields.append(lambda rows: [b"Offset:%d" % each for each in rows.offsets])
    if headers:
        fields.append(lambda rows: [_console_headers(each, null) for each in rows.headers])
    if key:
        fields.append(lambda rows: shown(rows.keys, null))
    if value:
        fields.append(lambda rows: shown(rows.values, null))
    between = _Literal(separator)
    separated = [column for field in fields for column in (between, field)]
    return _writer([*separated[1:], _Literal(ending)])


def _timestamps(rows: Rows) -> list[bytes]:
    name = b"LogAppendTime" if rows.timestamp_type == 1 else b"CreateTime"
    return [b"%s:%d" % (b"NO_TIMESTAMP" if each < 0 else name, each) for each in rows.timestamps_ms]


def _console_headers(headers: Sequence[Header], null: bytes) -> bytes:
    pairs = [name.encode() + b":" + (null if value is None else value) for name, value in headers]
    return b",".join(pairs) if pairs else b"NO_HEADERS"


def json_format() -> Writer:
    """One JSON object a line, kcat's envelope. Bytes that are not UTF-8 are base64, and `key_encoding` or
    `payload_encoding` says so; headers are a list of {key, value}, since their names may repeat."""
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

    def write(rows: Rows) -> bytes:
        where: dict[str, object] = {"topic": rows.topic, "partition": rows.partition}
        kind = {"tstype": "logappend" if rows.timestamp_type == 1 else "create"}
        lines = [
            encode(
                {
                    **where,
                    "offset": offset,
                    **kind,
                    "ts": timestamp_ms,
                    "headers": [{"key": name, **_json_bytes("value", content)} for name, content in headers],
                    **_json_bytes("key", key),
                    **_json_bytes("payload", value),
                }
            )
            for offset, timestamp_ms, key, value, headers in zip(
                rows.offsets, rows.timestamps_ms, rows.keys, rows.values, rows.headers, strict=True
            )
        ]
        return "".join([f"{line}\n" for line in lines]).encode()

    return write


def _json_bytes(field: str, data: bytes | None) -> dict[str, object]:
    if data is None:
        return {field: None}
    try:
        return {field: data.decode()}
    except UnicodeDecodeError:
        return {field: base64.b64encode(data).decode(), f"{field}_encoding": "base64"}
