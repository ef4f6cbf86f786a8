"""`produce` and `consume` with a terminal before them: how far they are is shown there, and garbles nothing."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from strandline.cli.cluster import EmbeddedCluster

TIMEOUT_S = 120
COUNT = 3_000


class Ran(NamedTuple):
    code: int
    out: bytes
    terminal: str


class Terminal:
    """Runs commands whose stderr, and stdout if wanted, is a terminal."""

    def __init__(self, bootstrap: str) -> None:
        self.environment = {**os.environ, "STRANDLINE_BOOTSTRAP": bootstrap, "TERM": "xterm"}

    def __call__(self, *args: str, stdin: Path | str = "/dev/null", is_output_shown: bool = False) -> Ran:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 25, 120, 0, 0))
        with (
            open(stdin, "rb") as source,
            os.fdopen(ours, "rb", buffering=0) as screen,
            subprocess.Popen(
                [sys.executable, "-m", "strandline.cli", *args],
                env=self.environment,
                stdin=source,
                stdout=theirs if is_output_shown else subprocess.PIPE,
                stderr=theirs,
            ) as process,
        ):
            os.close(theirs)
            out = b"" if process.stdout is None else process.stdout.read()
            shown = b"".join(pieces_of(screen))
            return Ran(process.wait(TIMEOUT_S), out, shown.decode())


def pieces_of(screen: object) -> Iterator[bytes]:
    """Until nobody has the other side any more."""
    try:
        while piece := os.read(screen.fileno(), 65_536):  # type: ignore[attr-defined]  # of a file
            yield piece
    except OSError:
        return


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    with EmbeddedCluster(tmp_path_factory.mktemp("terminals"), 1) as cluster:
        yield Terminal(cluster.bootstrap_servers)


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lines") / "lines"
    path.write_bytes(b"".join(b"line %d\n" % number for number in range(COUNT)))
    return path


def test_progress_is_shown_on_the_terminal_and_the_lines_go_elsewhere(terminal: Terminal, lines: Path) -> None:
    ran = terminal("produce", "-t", "shown", "--rate", "1500", stdin=lines)
    assert (ran.code, ran.out) == (0, b"")
    told, *drawn, counted, rest = ran.terminal.split("\r\n")
    assert told.startswith("strandline: created topic shown with ")
    assert " acked  0 failed" in ran.terminal and "\x1b[2K" in ran.terminal
    assert counted.split("\x1b[2K")[-1].endswith(f"{COUNT} records produced to shown in 1 partition (25890 bytes)"), (
        drawn
    )
    assert rest == ""

    ran = terminal("consume", "-t", "shown", "--from-beginning", "--timeout-ms", "1500")
    assert (ran.code, ran.out) == (0, lines.read_bytes())
    assert "3,000 records  " in ran.terminal
    assert ran.terminal.endswith(f"Processed a total of {COUNT} messages\r\n")


def test_where_lines_and_progress_would_meet_there_are_lines_alone(terminal: Terminal, lines: Path) -> None:
    assert terminal("produce", "-t", "alone", "-q", stdin=lines).code == 0
    ran = terminal("consume", "-t", "alone", "--from-beginning", "--timeout-ms", "1500", is_output_shown=True)
    expected = lines.read_text() + f"Processed a total of {COUNT} messages\n"
    assert (ran.code, ran.terminal.replace("\r\n", "\n")) == (0, expected)
    ran = terminal("produce", "-t", "alone", "-v", "--rate", "1500", stdin=lines, is_output_shown=True)
    assert (ran.code, "\x1b" in ran.terminal, ran.terminal.count("\n")) == (0, False, COUNT + 1)
