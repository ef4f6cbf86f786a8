"""Scenarios replay: trio schedules from a fixed seed, its clock is virtual."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trio


@pytest.fixture(autouse=True)
def _replayable(autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The order in which trio runs its tasks is drawn from a seeded stream (trio's own switch for its tests)."""
    monkeypatch.setattr(trio._core._run, "_ALLOW_DETERMINISTIC_SCHEDULING", True)
    trio._core._run._r.seed(0)
    yield
