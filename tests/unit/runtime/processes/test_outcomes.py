"""Outcomes: threads that wait, callbacks, and what the standard library does with futures."""

from __future__ import annotations

import asyncio
import concurrent.futures
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import trio

from strandline.client.delivery import Awaited
from strandline.runtime.processes.outcomes import Outcome

PATIENCE_S = 60


def test_a_thread_waits_until_it_is_settled() -> None:
    outcome: Outcome[int] = Outcome()
    with pytest.raises(TimeoutError):
        outcome.result(0)
    thread = threading.Timer(0.01, outcome.settle, [42])
    thread.start()
    assert outcome.result(PATIENCE_S) == 42
    assert outcome.exception() is None
    assert not outcome._listeners, "who waited in vain is forgotten"
    thread.join()


def test_an_error_is_raised_or_told() -> None:
    outcome: Outcome[int] = Outcome()
    outcome.settle(None, KeyError("x"))
    with pytest.raises(KeyError):
        outcome.result()
    assert isinstance(outcome.exception(), KeyError)
    assert "KeyError" in repr(outcome)


@pytest.mark.parametrize("kind", [Outcome, Awaited])
def test_an_error_that_many_share_does_not_grow_with_each_that_raises_it(kind: Callable[[], Any]) -> None:
    error = KeyError("x")
    sharing = [kind() for _ in range(20)]
    for each in sharing:
        each.settle(None, error)
    depths = []
    for each in sharing:
        with pytest.raises(KeyError) as caught:
            each.result()
        depths.append(len(caught.traceback))
    assert set(depths) == {depths[0]}


def test_callbacks_are_called_once_in_their_order_whenever_they_come() -> None:
    outcome: Outcome[int] = Outcome()
    told: list[str] = []
    outcome.add_done_callback(lambda future: told.append(f"first {future.result()}"))
    outcome.add_done_callback(lambda _: 1 / 0)
    outcome.add_done_callback(lambda _: told.append("second"))
    with pytest.warns(RuntimeWarning, match="callback of Outcome raised ZeroDivisionError"):
        outcome.settle(1)
    outcome.add_done_callback(lambda future: told.append(f"late {future.done()}"))
    assert told == ["first 1", "second", "late True"]


class Aborted(BaseException):
    """As pytest's own outcomes are."""


@pytest.mark.parametrize("mistake", [SystemExit(1), asyncio.CancelledError(), KeyboardInterrupt(), Aborted()], ids=repr)
def test_whatever_a_callback_raises_in_the_thread_of_the_loop_keeps_nobody_from_being_told(
    mistake: BaseException,
) -> None:
    outcome: Outcome[int] = Outcome()
    told: list[Outcome[int]] = []

    def raises(_: object) -> None:
        raise mistake

    outcome.add_done_callback(raises)
    outcome.add_done_callback(told.append)
    with pytest.warns(RuntimeWarning, match="callback of Outcome raised"), ThreadPoolExecutor(1) as loop:
        loop.submit(outcome.settle, 1).result()
    assert told == [outcome]


def test_what_interrupts_the_program_or_ends_a_task_goes_on() -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    def cancel(_: object) -> None:
        raise trio.Cancelled._create()

    outcome: Outcome[int] = Outcome()
    outcome.settle(1)
    with pytest.raises(KeyboardInterrupt):
        outcome.add_done_callback(interrupt)
    with pytest.raises(trio.Cancelled):
        outcome.add_done_callback(cancel)


def test_who_comes_while_it_is_being_settled_is_told() -> None:
    """The state is looked at before the list is: both under one lock."""
    for _ in range(200):
        outcome: Outcome[int] = Outcome()
        told: list[int] = []
        begin = threading.Barrier(2)

        def add(outcome=outcome, told=told, begin=begin) -> None:
            begin.wait()
            outcome.add_done_callback(lambda future: told.append(future.result()))

        thread = threading.Thread(target=add)
        thread.start()
        begin.wait()
        outcome.settle(7)
        thread.join()
        assert told == [7]


def test_the_standard_library_waits_for_them_beside_its_own() -> None:
    outcomes: list[Outcome[int]] = [Outcome() for _ in range(3)]
    own: concurrent.futures.Future[int] = concurrent.futures.Future()
    everything = [*outcomes, own]
    assert concurrent.futures.wait(everything, 0).not_done == set(everything)
    outcomes[0].settle(0)
    first = concurrent.futures.wait(everything, PATIENCE_S, concurrent.futures.FIRST_COMPLETED)
    assert first.done == {outcomes[0]}
    thread = threading.Timer(0.01, lambda: [outcomes[1].settle(None, KeyError()), outcomes[2].settle(2)])
    thread.start()
    own.set_result(3)
    failed = concurrent.futures.wait(everything, PATIENCE_S, concurrent.futures.FIRST_EXCEPTION)
    assert outcomes[1] in failed.done
    assert set(concurrent.futures.as_completed(everything, PATIENCE_S)) == set(everything)
    thread.join()


def test_a_thread_that_was_interrupted_while_it_looked_at_several_hinders_nobody() -> None:
    """The standard library takes the conditions of all, and an interrupt there leaves those that it has."""
    first, second = Outcome[int](), Outcome[int]()
    thread = threading.Thread(target=lambda: (first._condition.acquire(), second._condition.acquire()))
    thread.start()
    thread.join()
    with ThreadPoolExecutor(1) as loop:
        waiting = loop.submit(concurrent.futures.wait, [first, second], PATIENCE_S)
        first.settle(1)
        second.settle(2)
        assert waiting.result(PATIENCE_S).done == {first, second}


@pytest.mark.parametrize("wait", [concurrent.futures.wait, concurrent.futures.as_completed])
def test_the_standard_library_misses_none_that_is_settled_while_it_enters_the_lists(wait: Callable[..., Any]) -> None:
    """Each counts as finished, or is told of, and never both."""
    for moment in range(1, 120):
        outcomes = [Outcome[int]() for _ in range(3)]
        left = moment

        def settle_one(frame: Any, event: str, _: object, outcomes=outcomes) -> Any:
            nonlocal left
            if frame.f_globals.get("__name__") not in ("concurrent.futures._base", Outcome.__module__):
                return None
            left -= 1
            if left == 0:
                outcomes[1].settle(1)
            return settle_one

        outcomes[0].settle(0)
        late = threading.Timer(0.001, lambda outcomes=outcomes: [outcomes[2].settle(2), outcomes[1].settle(1)])
        late.start()
        sys.settrace(settle_one)
        try:
            found = wait(outcomes, PATIENCE_S)
            done = set(getattr(found, "done", found))
        finally:
            sys.settrace(None)
        late.join()
        assert done == set(outcomes), moment


def test_what_is_under_way_cannot_be_cancelled() -> None:
    outcome: Outcome[int] = Outcome()
    assert not outcome.cancel() and outcome.running() and not outcome.cancelled()


def test_one_that_nobody_waits_for_costs_no_more_than_its_value() -> None:
    outcome: Outcome[int] = Outcome()
    assert not outcome.done() and vars(outcome) == {}
    outcome.settle(1)
    assert set(vars(outcome)) == {"_result", "_is_settled"} and outcome.result() == 1
