"""Key and text, as they stand in a Java properties file, and how several sources of them lie on each other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from strandline.runtime.config.values import InvalidConfig

_FOLDER_KEYS = ("log.dirs", "log.dir")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_PAIR = re.compile(r"((?:\\.|[^\\:=\s])*)[ \t\f]*[:=]?[ \t\f]*(.*)", re.DOTALL)


def parse_properties(text: str) -> dict[str, str]:
    """Key → value of a Java properties file: `key=value`, `key: value` or `key value`; # and ! begin comments, a
    backslash at the end continues a line, \\t \\n \\uXXXX are escapes; of two lines with one key the last one counts.

    InvalidConfig: a line without a key, or a \\u without four hexadecimal digits.
    """
    properties: dict[str, str] = {}
    for number, line in _logical_lines(text):
        match = _PAIR.fullmatch(line)
        assert match is not None  # every text has the shape: all parts may be empty
        key = _unescape(match[1], number)
        if not key:
            raise InvalidConfig(f"line {number}", line, "has no key before the separator")
        properties[key] = _unescape(match[2], number)
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """(line number, line) without comments and blank lines, continued lines joined."""
    pending, first = "", 0
    for number, raw in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), start=1):
        line = raw.lstrip(" \t\f")
        if not pending:
            if not line or line[0] in "#!":
                continue
            first = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        yield first, pending + line
        pending = ""
    if pending:
        yield first, pending


def _unescape(text: str, number: int) -> str:
    if "\\" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        escape = match[1]
        if escape[0] != "u":
            return _ESCAPES.get(escape, escape)
        if len(escape) != 5:
            raise InvalidConfig(f"line {number}", text, "\\u needs four hexadecimal digits; write \\\\ for a backslash")
        return chr(int(escape[1:], 16))

    return re.sub(r"\\(u[0-9A-Fa-f]{4}|.)", replace, text, flags=re.DOTALL)


def layered(*layers: Mapping[str, str]) -> dict[str, str]:
    """Key → text of several sources, a later one wins. log.dir and log.dirs say the same thing: the later source's
    replaces both."""
    properties: dict[str, str] = {}
    for layer in layers:
        if not layer.keys().isdisjoint(_FOLDER_KEYS):
            for key in _FOLDER_KEYS:
                properties.pop(key, None)
        properties.update(layer)
    return properties
