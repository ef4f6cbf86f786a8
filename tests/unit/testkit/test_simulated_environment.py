"""The simulated seams of one node."""

from __future__ import annotations

import pytest
import trio

from strandline.testkit.environment import InlineBlocking, SeededRandom, VirtualWallClock


async def test_blocking_work_takes_virtual_time_and_returns_or_raises_like_a_call(
    autojump_clock: trio.abc.Clock,
) -> None:
    blocking = InlineBlocking(delay_s=3.0)
    started = trio.current_time()
    assert await blocking.run(divmod, 7, 2) == (3, 1)
    assert trio.current_time() - started == pytest.approx(3.0)
    with pytest.raises(ZeroDivisionError):
        await blocking.run(divmod, 7, 0)
    assert blocking.calls == 2


async def test_blocking_work_that_is_cancelled_while_it_waits_never_happens(autojump_clock: trio.abc.Clock) -> None:
    blocking = InlineBlocking(delay_s=3.0)
    done: list[int] = []
    with trio.move_on_after(1.0):
        await blocking.run(done.append, 1)
    await trio.sleep(10)
    assert done == []


async def test_the_wall_clock_moves_with_virtual_time_and_can_be_set_wrong(autojump_clock: trio.abc.Clock) -> None:
    clock = VirtualWallClock(start_ms=1_000_000)
    await trio.sleep(2.5)
    assert clock.now_ms() == 1_002_500
    clock.skew_ms = -60_000
    assert clock.now_ms() == 942_500


def test_a_stream_depends_on_seed_node_and_purpose_only() -> None:
    first, second = SeededRandom(1, "broker-1"), SeededRandom(1, "broker-1")
    second("another purpose").random()
    assert [first("backoff").random() for _ in range(3)] == [second("backoff").random() for _ in range(3)]
    assert first("backoff") is first("backoff")
    values = {
        SeededRandom(seed, node)(purpose).random() for seed in (1, 2) for node in ("a", "b") for purpose in ("x", "y")
    }
    assert len(values) == 8
