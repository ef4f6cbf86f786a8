"""What a record still lacks whose beginning has been read: so that it is not looked at anew with each piece that comes.

Rules: each piece is looked at once, however many there are; what is told may be wrong in one way only, that it has come
though it has not.
"""

from __future__ import annotations

import re
from typing import Protocol

_UNESCAPED_QUOTE = re.compile(rb'(?<!\\)(?:\\\\)*"')


class Lack(Protocol):
    """Of one record."""

    def ends_with(self, piece: bytes) -> bool:
        """Whether it may have come now that this piece has; asked once for each."""
        ...


class MoreWanted(Exception):
    """The record is not whole yet."""

    def __init__(self, lack: Lack | None = None) -> None:
        super().__init__()
        self.lack = lack or AnyPiece()


class AnyPiece:
    """Little, which any piece may bring."""

    def ends_with(self, piece: bytes) -> bool:
        return True


class SomeBytes:
    """So many."""

    def __init__(self, count: int) -> None:
        self._left = count

    def ends_with(self, piece: bytes) -> bool:
        self._left -= len(piece)
        return self._left <= 0


class Literal:
    """These bytes, of which the first ones may stand at the end of what is there."""

    def __init__(self, literal: bytes, before: bytes) -> None:
        self._literal = literal
        self._kept_bytes = len(literal) - 1
        self._tail = self._end_of(before)

    def ends_with(self, piece: bytes) -> bool:
        data = self._tail + piece
        self._tail = self._end_of(data)
        return self._literal in data

    def _end_of(self, data: bytes) -> bytes:
        return data[-self._kept_bytes :] if self._kept_bytes else b""


class ClosingQuote:
    """Of a text in JSON, behind what is there of it."""

    def __init__(self, before: bytes) -> None:
        self._escape = b""
        self._note_escape(before)

    def ends_with(self, piece: bytes) -> bool:
        data = self._escape + piece
        self._note_escape(data)
        return _UNESCAPED_QUOTE.search(data) is not None

    def _note_escape(self, data: bytes) -> None:
        """Whether what comes next is behind an open backslash."""
        backslashes = len(data) - len(data.rstrip(b"\\"))
        self._escape = b"\\" if backslashes % 2 else b""
