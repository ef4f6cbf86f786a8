"""The terminal of the tests shows what a real one would, and notices what none would show."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.terminal import Garbled, Screen, on_a_terminal


def shown(text: str, columns: int = 20) -> list[str]:
    screen = Screen(columns)
    screen.write(text)
    return screen.shown()


def test_what_is_written_over_is_gone() -> None:
    assert shown("50 %\r100 %\r\ndone\r\n") == ["100 %", "done", ""]
    assert shown("bar\x1b[2K\rline\r\nbar\x1b[1A\r\x1b[2Kup") == ["up", "bar"]
    assert shown("\x1b[1mbold\x1b[0m \x1b[?25lend") == ["bold end"]
    assert shown("ann\tlogin") == ["ann     login"]


def test_long_lines_wrap_and_are_noticed() -> None:
    screen = Screen(4)
    screen.write("abcd")
    assert not screen.wrapped
    screen.write("e")
    assert screen.wrapped == ["abcd"] and screen.shown() == ["abcd", "e"]


@pytest.mark.parametrize("text", ["\x1b[", "\x1b", "\x00", "\x1b[5q", "\x07"])
def test_what_no_terminal_shows_is_refused(text: str) -> None:
    with pytest.raises(Garbled):
        shown(text)


def test_a_program_has_a_terminal_is_typed_at_and_its_code_is_told(tmp_path: Path) -> None:
    script = "test -t 0 && test -t 1 && test -t 2 && stty size && read line && echo got $line && exit 3"
    seen = on_a_terminal(["sh", "-c", script], tmp_path, keys=[("80", "word\n")])
    assert seen.code == 3 and seen.lines[0] == "40 80" and "got word" in seen.lines
