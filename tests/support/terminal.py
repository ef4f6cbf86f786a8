"""A terminal for tests: a program runs on a pseudo-terminal, and what somebody would see of it is told as lines.

`Screen` understands what our commands and rich write. Anything else, such as half an escape sequence, raises: it would
show as garbage.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

CSI = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])")
TIMEOUT_S = 120


class Garbled(AssertionError):
    """Something that no terminal shows as it was meant."""


class Screen:
    """Lines as they stand in the end; it never scrolls."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.lines: list[list[str]] = [[]]
        self.row = self.column = 0
        self.wrapped: list[str] = []
        """The beginnings of lines that were longer than the terminal is wide."""

    def write(self, text: str) -> None:
        place = 0
        while place < len(text):
            if text[place] == "\x1b":
                found = CSI.match(text, place)
                if found is None:
                    raise Garbled(f"no escape sequence: {text[place : place + 12]!r}")
                self._control(found[1], found[2])
                place = found.end()
                continue
            self._put(text[place])
            place += 1

    def shown(self) -> list[str]:
        return ["".join(line).rstrip() for line in self.lines]

    def _put(self, char: str) -> None:
        if char == "\r":
            self.column = 0
        elif char == "\n":
            self._to_row(self.row + 1)
        elif char == "\t":
            self.column = min(self.column // 8 * 8 + 8, self.columns - 1)
        elif char == "\b":
            self.column = max(self.column - 1, 0)
        elif not char.isprintable():
            raise Garbled(f"a control character: {char!r}")
        else:
            if self.column == self.columns:
                self.wrapped.append("".join(self.lines[self.row]))
                self._to_row(self.row + 1)
                self.column = 0
            line = self.lines[self.row]
            line += [" "] * (self.column + 1 - len(line))
            line[self.column] = char
            self.column += 1

    def _to_row(self, row: int) -> None:
        self.row = max(row, 0)
        self.lines += [[] for _ in range(self.row + 1 - len(self.lines))]

    def _control(self, parameters: str, final: str) -> None:
        number = int(parameters) if parameters.isdigit() else 1
        if final == "K":
            self.lines[self.row] = [] if parameters == "2" else self.lines[self.row][: self.column]
        elif final in "AB":
            self._to_row(self.row + (number if final == "B" else -number))
        elif final in "CD":
            self.column = max(self.column + (number if final == "C" else -number), 0)
        elif final not in "mhl":
            raise Garbled(f"an escape sequence that is not known here: {parameters}{final}")


class Seen(NamedTuple):
    """How a program ended, what is on the screen, and the bytes that it wrote."""

    code: int
    lines: list[str]
    written: str
    wrapped: list[str]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def on_a_terminal(
    command: Sequence[str],
    folder: Path,
    *,
    keys: Sequence[tuple[str, str]] = (),
    columns: int = 80,
    environment: Mapping[str, str] | None = None,
) -> Seen:
    """Run it with stdin, stdout and stderr on a terminal of its own. keys: (once this has been written, that is typed);
    `\\x03` is Ctrl-C, `\\x04` the end of the input. Written is what came since the keys before."""
    mine, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "TERM": "xterm-256color", **(environment or {})},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(theirs)
    try:
        written = _conversation(mine, list(keys))
        code = process.wait(TIMEOUT_S)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(mine)
    screen = Screen(columns)
    screen.write(written)
    return Seen(code, screen.shown(), written, screen.wrapped)


def _conversation(terminal: int, keys: list[tuple[str, str]]) -> str:
    """Everything that is written until the last one who has the terminal is gone."""
    data = b""
    answered = 0
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        if keys and keys[0][0] in data[answered:].decode(errors="ignore"):
            answered = len(data)
            os.write(terminal, keys.pop(0)[1].encode())
        if not select.select([terminal], [], [], max(deadline - time.monotonic(), 0))[0]:
            raise AssertionError(f"neither an end nor {keys[:1]} after {TIMEOUT_S} s: {data.decode(errors='replace')}")
        try:
            more = os.read(terminal, 65536)
        except OSError:  # nobody has the other end open any more
            return data.decode()
        if not more:
            return data.decode()
        data += more
