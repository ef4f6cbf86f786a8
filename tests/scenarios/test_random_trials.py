"""Seeds of whole brokers under load and blows. `STRANDLINE_SEEDS=0-199 pytest tests/scenarios/test_random_trials.py`
runs others than these few; a failure prints its plan, and its seed alone replays it."""

from __future__ import annotations

import os

import pytest

from support.random_plan import Plan
from support.random_trial import run_plan


def seeds() -> list[int]:
    first, _, last = os.environ.get("STRANDLINE_SEEDS", "0-9").partition("-")
    return list(range(int(first), int(last or first) + 1))


@pytest.mark.parametrize("seed", seeds())
async def test_what_was_acknowledged_stands_where_it_was_acknowledged(seed: int, autojump_clock) -> None:
    plan = Plan.draw(seed)
    try:
        await run_plan(plan)
    except BaseException as failure:
        failure.add_note(str(plan))
        raise
