"""Words that several commands share."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """`1 broker`, `2 brokers`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def printable(text: str) -> str:
    """`text` as one line without control characters; file names that are not UTF-8 are escaped."""
    line = " ".join(text.split())
    line = line.encode("utf-8", "backslashreplace").decode()
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in line)
