"""What a term has to do, and who waits for what: the rules of waiting."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from strandline.controller.agenda import MAX_PATIENCE_MS, Agenda


async def test_nobody_is_kept_waiting_longer_than_a_handler_task_may_be_held(autojump_clock: MockClock) -> None:
    began = trio.current_time()
    assert not await Agenda().within(2**31 - 1, lambda: False)
    assert trio.current_time() - began == MAX_PATIENCE_MS / 1000


async def test_whose_time_is_over_already_is_told_how_it_stands(autojump_clock: MockClock) -> None:
    assert await Agenda().within(-1, lambda: True)
    assert not await Agenda().within(0, lambda: False)
