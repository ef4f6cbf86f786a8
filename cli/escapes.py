r"""Escapes in texts of the command line, where it is hard to type the byte itself: `\n \t \r \0 \\ \xNN`. Pure."""

from __future__ import annotations

import re


class InvalidEscape(ValueError):
    """The text has an escape that does not exist; the message shows it."""


ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "\\": b"\\", "0": b"\0"}
_PIECE = re.compile(r"\\x(?P<hex>[0-9a-fA-F]{2})|\\(?P<escape>.?)|[^\\]+", re.DOTALL)


def unescaped(text: str) -> bytes:
    """The bytes that `text` stands for; what is no escape is taken as it was typed. Raises InvalidEscape."""
    pieces = []
    for match in _PIECE.finditer(text):
        if match["hex"] is not None:
            pieces.append(bytes([int(match["hex"], 16)]))
        elif match["escape"] is None:
            pieces.append(match[0].encode("utf-8", "surrogateescape"))
        elif match["escape"] in ESCAPES:
            pieces.append(ESCAPES[match["escape"]])
        else:
            raise InvalidEscape(f"'{text}': no escape \\{match['escape']}; write \\\\ for a backslash")
    return b"".join(pieces)
