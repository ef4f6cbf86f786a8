"""Scenarios replay: trio schedules from a fixed seed. Each test takes `autojump_clock`: its time is virtual."""

from __future__ import annotations

import pytest
import trio


@pytest.fixture(autouse=True)
def _replayable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order in which trio runs its tasks is drawn from a seeded stream (trio's own switch for its tests)."""
    monkeypatch.setattr(trio._core._run, "_ALLOW_DETERMINISTIC_SCHEDULING", True)
    trio._core._run._r.seed(0)
