r"""How `strandline produce -F` reads what `strandline consume -f` has written: the same template, backwards. Pure.

Each piece of the template is a step that takes bytes from where the last one ended. Literals have to stand there. %v %k
and %h go up to the literal behind them, or, where a length (%V %S %R %K; %H for headers) stood before them, as far as
that says: then they may hold any bytes, and −1 is null. %v{json} ends by itself; a number does where what follows it,
in the next record, too, cannot begin with a digit. %p says where to; %t %o %e %i are read and passed over.

Rules: a step never looks back. One that lacks bytes says which, and is taken anew when they may have come: what a long
record has already brought is not looked at again with each piece that comes.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from strandline.cli.more_input import AnyPiece, ClosingQuote, Lack, Literal, MoreWanted, SomeBytes
from strandline.cli.record_format import (
    BYTES_VERBS,
    Header,
    InvalidFormat,
    Piece,
    pieces_of,
    pieces_of_headers,
    time_pattern,
    unknown_modifier,
)
from strandline.cli.record_input import (
    InputReader,
    InputRecord,
    InvalidInput,
    LineReader,
    LineRules,
    Records,
    Refused,
    header_name,
    timestamp,
)


@dataclass(slots=True)
class _Fields:
    """What is read of one record, or of one header: then its name is the key."""

    key: bytes | None = None
    value: bytes | None = None
    headers: list[Header] = field(default_factory=list)
    timestamp_ms: int | None = None
    partition: int | None = None
    key_bytes: int | None = None
    value_bytes: int | None = None
    headers_count: int | None = None
    steps: int = 0
    """So many are taken of a record's, up to `position`."""
    position: int = 0
    headers_bytes: int = 0
    """So many the headers have that a step under way has read."""


@dataclass(slots=True)
class _Input:
    """What has been fed and is not read yet. `is_whole`: no more comes."""

    data: bytes = b""
    is_whole: bool = False


Step = Callable[[_Input, int, _Fields], int]
"""Reads what stands from there on; where it ends. Raises MoreWanted, Refused."""

_NUMBER = re.compile(rb"-?\d{1,19}")
_JSON_TEXT = re.compile(rb'null|"(?:[^"\\]|\\.)*"', re.DOTALL)
_LENGTH_OF = {"V": "vs", "S": "vs", "R": "vs", "K": "k", "H": "h"}
"""Which verbs end where these have said."""
_NUMBERS = "pTdoeiVSKH"


def input_reader(template: str, *, null: bytes | None = None) -> InputReader:
    """What reads records by the template. null: a key or value that is this one is null, but for one whose length is
    given. Raises InvalidFormat where it does not say where something ends."""
    pieces = pieces_of(template)
    if not any(piece.verb in BYTES_VERBS for piece in pieces if piece.verb):
        raise InvalidFormat(f"format '{template}' has neither %v nor %k; a file to read from is given with -l")
    match [(piece.verb, piece.modifier, piece.literal) for piece in pieces]:
        case [("v" | "s", None, _), ("", None, ending)]:
            return LineReader(LineRules(ending, null=null))
        case [("k", None, _), ("", None, separator), ("v" | "s", None, _), ("", None, ending)] if separator != ending:
            return LineReader(LineRules(ending, separator, null=null))
    return FormatReader(pieces, template, null)


class FormatReader(InputReader):
    """By the steps of a template."""

    def __init__(self, pieces: list[Piece], template: str, null: bytes | None) -> None:
        self._steps = _steps(pieces, template, null, behind=pieces[:1])
        self._is_full = any(piece.verb in ("h", "T", "d") for piece in pieces)
        self._input = _Input()
        self._pieces: list[bytes] = []
        """What came behind that, as long as it cannot end the record."""
        self._begun = _Fields()
        self._lack: Lack = AnyPiece()
        self._next_line = 1

    def feed(self, chunk: bytes) -> list[Records]:
        self._pieces.append(chunk)
        return self._read() if self._lack.ends_with(chunk) else []

    def end(self) -> list[Records]:
        self._input.is_whole = True
        return self._read()

    def _read(self) -> list[Records]:
        """All that is whole; what goes to one partition and follows each other is one of the items."""
        self._input.data = data = b"".join([self._input.data, *self._pieces])
        self._pieces, self._lack = [], AnyPiece()
        begun, start, refused = self._begun, 0, ""
        found: list[Records] = []
        while start < len(data):
            try:
                self._go_on(begun)
            except MoreWanted as wanted:
                self._lack = wanted.lack
                if self._input.is_whole:
                    refused = "the input ends in the middle of a record"
                break
            except Refused as error:
                refused = str(error)
                break
            end = begun.position
            if not found or found[-1].partition != begun.partition:
                lines: list[int] = []
                found.append(Records(lines, [], 0, begun.partition))
            batch = found[-1]
            lines.append(self._next_line)
            batch.records.append(self._record(begun))
            found[-1] = batch._replace(size_bytes=batch.size_bytes + end - start)
            self._next_line += data.count(b"\n", start, end)
            begun, start = _Fields(), end
            begun.position = end
        self._input.data = data[start:]
        begun.position -= start
        self._begun = begun
        if refused:
            self.error = InvalidInput(self._next_line, self._input.data, refused)
        return found

    def _go_on(self, fields: _Fields) -> None:
        position, steps = fields.position, fields.steps
        try:
            for step in self._steps[steps:] if steps else self._steps:
                position = step(self._input, position, fields)
                steps += 1
        finally:
            fields.position, fields.steps = position, steps

    def _record(self, fields: _Fields) -> InputRecord:
        if self._is_full:
            return fields.key, fields.value, fields.headers, fields.timestamp_ms
        return fields.key, fields.value


def _steps(pieces: list[Piece], template: str, null: bytes | None, behind: list[Piece]) -> list[Step]:
    """behind: what may follow the last piece. Raises InvalidFormat."""
    steps: list[Step] = []
    lengths: set[str] = set()
    for place, piece in enumerate(pieces):
        literal = pieces[place + 1].literal if place + 1 < len(pieces) else b""
        followers = pieces[place + 1 : place + 2] or behind
        is_last = place + 2 >= len(pieces)
        verb, modifier = piece.verb, piece.modifier
        if not verb:
            steps.append(_literal(piece.literal, is_last=place + 1 == len(pieces)))
            continue
        if verb == "R" and modifier is None:
            steps.append(_big_endian_length)
        elif verb in _NUMBERS and modifier is None:
            if any(map(_may_begin_with_digit, followers)):
                raise InvalidFormat(
                    f"format '{template}' does not say where %{verb} ends: write something behind it that is no digit, "
                    "for example a space"
                )
            steps.append(_number(verb))
        else:
            ends_by_itself = modifier == "json" or (verb in lengths and (verb == "h") == (modifier is not None))
            if not ends_by_itself and not literal:
                raise InvalidFormat(
                    f"format '{template}' does not say where %{verb} ends: write something behind it, for example \\n"
                )
            steps.append(_of_verb(piece, literal, followers, is_last, template, null))
        if verb in _LENGTH_OF:
            lengths.update(_LENGTH_OF[verb])
    return steps


def _may_begin_with_digit(piece: Piece) -> bool:
    """So that nobody can tell whether it belongs to the number before it."""
    if not piece.verb:
        return piece.literal[:1].isdigit()
    return not (piece.modifier == "json" or (piece.verb == "R" and piece.modifier is None))


def _of_verb(
    piece: Piece, literal: bytes, followers: list[Piece], is_last: bool, template: str, null: bytes | None
) -> Step:
    """literal: what stands behind it. followers: what may, of which there are several at the end of a template."""
    verb, modifier = piece.verb, piece.modifier
    if verb in BYTES_VERBS:
        if modifier == "json":
            return _json_text(verb)
        if modifier is not None and modifier not in _DECODERS:
            raise unknown_modifier(piece, template)
        return _bytes(verb, literal, is_last, _DECODERS.get(modifier or ""), null)
    if verb == "h":
        if modifier is None:
            return _listed_headers(literal, is_last, null)
        of_each = pieces_of_headers(modifier)
        return _headers(_steps(of_each, modifier, null, behind=[*of_each[:1], *followers]), literal)
    if verb == "t" and modifier is None:
        return lambda source, start, fields: _until(source, start, literal, is_last)
    if (pattern := time_pattern(piece)) is not None:
        return _time(pattern, literal, is_last)
    raise unknown_modifier(piece, template)


# --- Steps ---


def _until(source: _Input, start: int, literal: bytes, is_last: bool) -> int:
    """Where the literal stands; the last one may be missing at the end of all."""
    found = source.data.find(literal, start)
    if found >= 0:
        return found
    if source.is_whole and is_last:
        return len(source.data)
    raise MoreWanted(Literal(literal, source.data[-len(literal) :]))


def _literal(literal: bytes, *, is_last: bool) -> Step:
    def step(source: _Input, start: int, fields: _Fields) -> int:
        data = source.data
        if data.startswith(literal, start):
            return start + len(literal)
        if is_last and source.is_whole and start == len(data):
            return start
        if literal.startswith(data[start : start + len(literal)]):
            raise MoreWanted
        raise Refused(f"{literal!r} was to stand where {data[start : start + len(literal)]!r} stands")

    return step


def _number(verb: str) -> Step:
    def step(source: _Input, start: int, fields: _Fields) -> int:
        match = _NUMBER.match(source.data, start)
        if not source.is_whole and (match.end() if match else start + 1) >= len(source.data):
            raise MoreWanted
        if match is None:
            raise Refused(f"%{verb} was to be a number")
        number = int(match[0])
        if verb in "Td":
            fields.timestamp_ms = timestamp(number)
        elif verb == "p":
            if number < 0:
                raise Refused(f"partition {number} is negative")
            fields.partition = number
        else:
            _note_length(fields, verb, number)
        return match.end()

    return step


def _note_length(fields: _Fields, verb: str, number: int) -> None:
    if verb in _LENGTH_OF and number < (0 if verb == "H" else -1):
        raise Refused(f"length {number} (%{verb}) is negative")
    if verb == "K":
        fields.key_bytes = number
    elif verb in "VSR":
        fields.value_bytes = number
    elif verb == "H":
        fields.headers_count = number


def _big_endian_length(source: _Input, start: int, fields: _Fields) -> int:
    if len(source.data) < start + 4:
        raise MoreWanted
    _note_length(fields, "R", int.from_bytes(source.data[start : start + 4], "big", signed=True))
    return start + 4


_DECODERS: dict[str, Callable[[bytes], bytes]] = {
    "hex": lambda text: bytes.fromhex(text.decode("ascii")),
    "base64": lambda text: base64.b64decode(text, validate=True),
}


def _bytes(
    verb: str, literal: bytes, is_last: bool, decode: Callable[[bytes], bytes] | None, null: bytes | None
) -> Step:
    def step(source: _Input, start: int, fields: _Fields) -> int:
        size = fields.key_bytes if verb == "k" else fields.value_bytes
        data: bytes | None
        if size is not None and decode is None:
            end = start + max(size, 0)
            if end > len(source.data):
                raise MoreWanted(SomeBytes(end - len(source.data)))
            data = None if size < 0 else source.data[start:end]
        else:
            end = _until(source, start, literal, is_last)
            data = source.data[start:end]
            if data == null or (size is not None and size < 0):
                data = None
            elif decode is not None:
                data = _decoded(data, decode, verb)
        if verb == "k":
            fields.key = data
        else:
            fields.value = data
        return end

    return step


def _decoded(text: bytes, decode: Callable[[bytes], bytes], verb: str) -> bytes:
    try:
        return decode(text)
    except (ValueError, binascii.Error) as error:
        raise Refused(f"%{verb} cannot be decoded ({error})") from None


def _json_text(verb: str) -> Step:
    def step(source: _Input, start: int, fields: _Fields) -> int:
        match = _JSON_TEXT.match(source.data, start)
        if match is None:
            begins = source.data[start : start + 1]
            if begins in (b"", b'"', b"n") and not source.is_whole:
                raise MoreWanted(ClosingQuote(source.data[start + 1 :]) if begins == b'"' else None)
            raise Refused(f"%{verb} was to be a text in JSON, or null")
        try:
            text = json.loads(match[0])
        except ValueError as error:
            raise Refused(f"%{verb} is not JSON ({error})") from None
        try:
            data = None if text is None else text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise Refused(f"%{verb} has half a character, a surrogate that is no byte (\\udc80 to \\udcff)") from None
        if verb == "k":
            fields.key = data
        else:
            fields.value = data
        return match.end()

    return step


def _time(pattern: str, literal: bytes, is_last: bool) -> Step:
    for short, meaning in (("%F", "%Y-%m-%d"), ("%T", "%H:%M:%S"), ("%R", "%H:%M"), ("%D", "%m/%d/%y")):
        pattern = pattern.replace(short, meaning)
    inside = max(each.strftime(pattern).encode().count(literal) for each in _MOMENTS)

    def step(source: _Input, start: int, fields: _Fields) -> int:
        """What stands behind a time may stand in it, too, as a space does: it ends where it is one."""
        end = _until(source, start, literal, is_last)
        for _ in range(inside):
            if _moment(source.data[start:end], pattern) is not None or end == len(source.data):
                break
            end = _until(source, end + len(literal), literal, is_last)
        moment = _moment(source.data[start:end], pattern)
        if moment is None:
            raise Refused(f"%d was to be a time as {pattern} shows it")
        fields.timestamp_ms = timestamp(round(moment.timestamp() * 1000))
        return end

    return step


_MOMENTS = (datetime.datetime(2023, 11, 4, 1, 2, 3, tzinfo=datetime.UTC), datetime.datetime(2023, 9, 20, 22, 33, 44))
"""Short and long when they are shown."""


def _moment(text: bytes, pattern: str) -> datetime.datetime | None:
    try:
        moment = datetime.datetime.strptime(text.decode(), pattern)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC)


def _listed_headers(literal: bytes, is_last: bool, null: bytes | None) -> Step:
    def step(source: _Input, start: int, fields: _Fields) -> int:
        end = _until(source, start, literal, is_last)
        for each in source.data[start:end].split(b",") if end > start else ():
            name, found, value = each.partition(b"=")
            if not found:
                raise Refused("%h was to be headers as k=v,k=v")
            fields.headers.append((header_name(name), None if value == null else value))
        return end

    return step


def _headers(steps: list[Step], literal: bytes) -> Step:
    """Each header by those steps: as many as %H has said, or up to the literal."""

    def step(source: _Input, start: int, fields: _Fields) -> int:
        count = fields.headers_count
        position = start + fields.headers_bytes
        while len(fields.headers) != count:
            if count is None:
                if source.data.startswith(literal, position) or (source.is_whole and position == len(source.data)):
                    break
                if literal.startswith(source.data[position:]):
                    raise MoreWanted
            header = _Fields()
            for each in steps:
                position = each(source, position, header)
            if header.key is None:
                raise Refused("a header has no name")
            fields.headers.append((header_name(header.key), header.value))
            fields.headers_bytes = position - start
        fields.headers_bytes = 0
        return position

    return step
