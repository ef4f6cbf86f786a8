"""Questions that block are asked at once, each by a thread."""

from __future__ import annotations

from threading import Barrier

import pytest

from strandline.runtime.processes.at_once import at_once


def test_nobody_is_waited_for_before_the_others_are_asked() -> None:
    """The barrier lets nobody through until all have come."""
    barrier = Barrier(50, timeout=30)

    def ask(number: int) -> int:
        barrier.wait()
        return -number

    assert list(at_once(ask, range(50, 0, -1)).items()) == [(number, -number) for number in range(50, 0, -1)]


def test_where_nobody_is_asked_there_is_no_answer() -> None:
    assert at_once(str, []) == {}


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
def test_what_one_of_them_raises_comes_out_as_it_is(error: BaseException) -> None:
    def ask(number: int) -> None:
        if number == 2:
            raise error

    with pytest.raises(type(error)) as raised:
        at_once(ask, [1, 2, 3])
    assert raised.value is error
