"""The line that says how far produce and consume are."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from strandline.cli.progress import Done, ProgressLine, fraction_read, is_terminal_for_progress, progress_text


class Terminal:
    """A wide one; the clock goes on by a second with each look at it."""

    def __init__(self) -> None:
        self.text = io.StringIO()
        self.console = Console(file=self.text, force_terminal=True, width=120)
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 1
        return self.now


def test_it_says_how_much_how_fast_and_how_far() -> None:
    assert progress_text(Done(1_234_567, 0), 12_345_678) == "1,234,567 records  12.3 MB/s"
    assert progress_text(Done(10, 0, 0.999, 7, 1), 0) == "10 records  0.0 MB/s  7 acked  1 failed  99 %"


def test_the_rate_is_that_of_the_last_moments_and_the_line_goes_in_the_end() -> None:
    terminal = Terminal()
    steps = iter([0, 1, 1, 9, 9, 9, 9, 9])

    def look() -> Done:
        step = next(steps)
        return Done(step, step * 1_000_000, step / 10)

    line = ProgressLine(look, terminal.monotonic, lambda: terminal.console)
    shown = []
    for _ in range(8):
        line.show()
        shown.append(terminal.text.getvalue())
        terminal.text.truncate(0)
    assert shown[0] == "", "before the first record there is nothing to say"
    assert "1 records  1.0 MB/s  10 %" in shown[1]
    assert "9 records  3.0 MB/s  90 %" in shown[3]
    assert "9 records  0.0 MB/s  90 %" in shown[7]
    line.stop()
    line.stop()
    assert terminal.text.getvalue().endswith("\x1b[2K")


def test_what_is_done_at_once_shows_nothing() -> None:
    terminal = Terminal()
    line = ProgressLine(lambda: pytest.fail("asked too early"), lambda: 0.4, lambda: terminal.console)
    line.show()
    line.stop()
    assert terminal.text.getvalue() == ""


@pytest.mark.parametrize(
    ("err", "out", "is_output_shown", "expected"),
    [(True, False, True, True), (True, True, True, False), (True, True, False, True), (False, False, False, False)],
)
def test_it_is_for_a_terminal_that_nothing_else_goes_to(
    monkeypatch: pytest.MonkeyPatch, err: bool, out: bool, is_output_shown: bool, expected: bool
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: err, raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: out, raising=False)
    assert is_terminal_for_progress(is_output_shown=is_output_shown) is expected


def test_of_a_file_it_is_known_how_much_is_read(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"x" * 100)
    with (tmp_path / "in").open("rb", buffering=0) as source:
        source.read(25)
        assert fraction_read(source) == 0.25
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as source, os.fdopen(writing, "wb"):
        assert fraction_read(source) is None
    assert fraction_read(io.BytesIO(b"x")) is None


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What would be shown, by commands that run on a terminal."""
    shown: list[str] = []

    def show(line: Any) -> None:
        shown.append(progress_text(line._look(), 0))

    monkeypatch.setattr(ProgressLine, "show", show)
    for module in ("produce", "consume"):
        monkeypatch.setattr(f"strandline.cli.{module}.is_terminal_for_progress", lambda **_: True)
    yield shown


def test_produce_tells_how_much_of_the_file_is_sent(shell: Any, tmp_path: Path, lines: list[str]) -> None:
    (tmp_path / "in").write_bytes(b"four\n" * 4)
    shell("produce", "-t", "t", "-l", str(tmp_path / "in"))
    assert lines[-1] == "4 records  0.0 MB/s  4 acked  0 failed  100 %"


def test_consume_tells_how_much_of_the_range_has_come(shell: Any, lines: list[str]) -> None:
    shell.cluster.fill("t", 0, [b"x"] * 3)
    shell.cluster.fill("t", 1, [b"x"])
    shell("consume", "-t", "t", "--from-beginning", "-e")
    assert lines == ["4 records  0.0 MB/s  100 %"]
    lines.clear()
    shell("consume", "-t", "t", "--from-beginning", "-c", "2")
    assert lines == ["2 records  0.0 MB/s  100 %"]
    lines.clear()
    shell("consume", "-t", "t", "--from-beginning", "--timeout-ms", "1")
    assert lines[0] == "4 records  0.0 MB/s"


def test_nothing_is_drawn_in_a_pipe(shell: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    drawn: list[Callable[[], None]] = []
    monkeypatch.setattr(ProgressLine, "show", drawn.append)
    shell.cluster.fill("t", 0, [b"x"])
    shell("consume", "-t", "t", "--from-beginning", "-e")
    (tmp_path / "in").write_bytes(b"x\n")
    shell("produce", "-t", "t", "-l", str(tmp_path / "in"))
    assert drawn == []
