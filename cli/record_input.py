"""How `strandline produce` makes records of its input: lines, or JSON objects as `consume -J` prints them. Pure.

Rules: bytes are fed as they come, in any pieces; nothing is decoded that is to be sent. A reader that meets what it
cannot read hands out what stood before it and keeps the error, which names the line, from 1 on, and shows how it
begins. Lines end with `\\n` (or another delimiter, and a `\\r` stays); the last one may lack it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple

from strandline.cli.record_format import Header

KeyAndValue = tuple[bytes | None, bytes | None]
FullRecord = tuple[bytes | None, bytes | None, Sequence[Header], int | None]
"""Key, value, headers, timestamp in ms since 1970; None: when it is sent."""
InputRecord = KeyAndValue | FullRecord

SHOWN_BYTES = 40
MAX_TIMESTAMP_MS = 2**63 - 1
"""The format of records has no later one."""


class InvalidInput(ValueError):
    """A line that is no record; the message names it."""

    def __init__(self, line_number: int, line: bytes, what: str) -> None:
        super().__init__(f"line {line_number}: {what}: {beginning(line)}")


def beginning(line: bytes) -> str:
    """How it begins, for people: at most a line."""
    first = line[: SHOWN_BYTES + 1].split(b"\n", 1)[0]
    return repr(first[:SHOWN_BYTES])[1:] + ("…" if len(first) < len(line) or len(line) > SHOWN_BYTES else "")


class Records(NamedTuple):
    """Some that follow each other. `lines`: where each begins, from 1 on. `partition`: where they are to go, as far as
    the input says that."""

    lines: Sequence[int]
    records: list[InputRecord]
    size_bytes: int
    partition: int | None = None

    def part(self, start: int, stop: int) -> Records:
        """Those at these places; their bytes as far as that can be known."""
        records = self.records[start:stop]
        size_bytes = sum(len(record[0] or b"") + len(record[1] or b"") for record in records)
        return self._replace(lines=self.lines[start:stop], records=records, size_bytes=size_bytes)


class InputReader(ABC):
    """`error`: what cannot be read; nothing is fed any more then."""

    error: InvalidInput | None = None

    @abstractmethod
    def feed(self, chunk: bytes) -> list[Records]:
        """The records that are whole now."""

    @abstractmethod
    def end(self) -> list[Records]:
        """No more bytes come: the last record."""


class LineRules(NamedTuple):
    """How a line becomes a record. `null`: a key, value or header's value that is this one is null. `headers_delimiter`
    stands behind the headers, which come first; None: there are none."""

    delimiter: bytes = b"\n"
    key_separator: bytes | None = None
    fixed_key: bytes | None = None
    null: bytes | None = None
    headers_delimiter: bytes | None = None
    headers_separator: bytes = b","
    headers_key_separator: bytes = b":"


class Refused(ValueError):
    """Of one line; the message says why."""


class LineReader(InputReader):
    """One record a line."""

    def __init__(self, rules: LineRules) -> None:
        self._rules = rules
        self._begun: list[bytes] = []
        self._next_line = 1

    def feed(self, chunk: bytes) -> list[Records]:
        delimiter = self._rules.delimiter
        behind = b""
        while self._begun and (missing := len(delimiter) - 1 - len(behind)):  # it may stand across two chunks
            last = self._begun.pop()
            behind = last[-missing:] + behind
            if len(last) > missing:
                self._begun.append(last[:-missing])
        chunk = behind + chunk
        first, *others = chunk.split(delimiter)
        self._begun.append(first)
        if not others:
            return []
        lines = [b"".join(self._begun), *others]
        self._begun = [lines.pop()]
        return self._records(lines)

    def end(self) -> list[Records]:
        last, self._begun = b"".join(self._begun), []
        return self._records([last]) if last else []

    def _records(self, lines: list[bytes]) -> list[Records]:
        first_line = self._next_line
        self._next_line += len(lines)
        records = self.parse(lines)
        if records is None:
            records = []
            for number, line in enumerate(lines, first_line):
                try:
                    records.append(self.parse_line(line))
                except Refused as error:
                    self.error = InvalidInput(number, line, str(error))
                    break
            lines = lines[: len(records)]
        numbers = range(first_line, first_line + len(records))
        return [Records(numbers, records, sum(map(len, lines)))] if records else []

    def parse(self, lines: list[bytes]) -> list[InputRecord] | None:
        """The fast way for the plain kinds; None where each line has to be looked at."""
        _, separator, fixed_key, null, headers_delimiter, *_ = self._rules
        if null is not None or headers_delimiter is not None:
            return None
        if separator is None:
            return list(zip(repeat(fixed_key), lines, strict=False))
        parts = [line.partition(separator) for line in lines]
        return [(key, value) for key, _, value in parts] if all(part[1] for part in parts) else None

    def parse_line(self, line: bytes) -> InputRecord:
        """Raises Refused."""
        rules = self._rules
        headers: list[Header] | None = None
        key, value = rules.fixed_key, line
        if rules.headers_delimiter is not None:
            listed, found, value = line.partition(rules.headers_delimiter)
            if not found:
                raise Refused(f"no headers before {rules.headers_delimiter!r}")
            headers = self._headers(listed)
        if rules.key_separator is not None:
            key, found, value = value.partition(rules.key_separator)
            if not found:
                raise Refused(f"no separator {rules.key_separator!r}; change --key-separator or leave it out")
        pair = _or_null(key, rules.null), _or_null(value, rules.null)
        return pair if headers is None else (*pair, headers, None)

    def _headers(self, listed: bytes) -> list[Header]:
        rules = self._rules
        if not listed or listed == rules.null:
            return []
        headers: list[Header] = []
        for each in listed.split(rules.headers_separator):
            name, found, content = each.partition(rules.headers_key_separator)
            if not found:
                raise Refused(f"header {beginning(each)} lacks {rules.headers_key_separator!r} behind its name")
            headers.append((header_name(name), _or_null(content, rules.null)))
        return headers


def header_name(name: bytes) -> str:
    """Raises Refused unless it is UTF-8."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise Refused(f"the name of header {beginning(name)} is not UTF-8") from None


def timestamp(number: int) -> int:
    """Raises Refused unless a record can have it; -1 is none."""
    if number < -1:
        raise Refused(f"timestamp {number} is before 1970")
    if number > MAX_TIMESTAMP_MS:
        raise Refused(f"timestamp {number} is above {MAX_TIMESTAMP_MS}")
    return number


def _or_null(data: bytes | None, null: bytes | None) -> bytes | None:
    return None if data == null else data
