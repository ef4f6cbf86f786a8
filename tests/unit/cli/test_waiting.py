"""What a terminal shows while a command waits for one answer."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from strandline.cli.waiting import shown_waiting

ON_TERMINAL = "strandline.cli.waiting.is_terminal_for_progress"


def shown(elapsed_s: float) -> str:
    """All that is written for a wait of so long."""
    out = io.StringIO()
    moments = iter([5.0])
    console = Console(file=out, force_terminal=True, width=80)
    with shown_waiting(lambda: "no answer yet", lambda: next(moments, 5.0 + elapsed_s), lambda: console):
        pass
    return out.getvalue()


def test_how_long_it_has_been_is_shown_and_taken_away_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ON_TERMINAL, lambda **_: True)
    written = shown(7.0)
    assert "no answer yet (7 s)" in written
    assert written.rpartition("(7 s)")[2].endswith("\x1b[1A\x1b[2K"), "the line is cleared"
    assert "no answer yet" not in shown(1.9), "what is answered soon"


def test_in_a_pipe_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ON_TERMINAL, lambda **_: False)
    assert shown(7.0) == ""
