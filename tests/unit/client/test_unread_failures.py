"""Which failures count as read: those that were asked for, before they are told or long after."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import trio
import trio.testing

from strandline.client.delivery import Delivery, ManyDelivery
from strandline.client.errors import NotSettledYet
from strandline.client.send_futures import Run, SendFuture, SendManyFuture, Where, send_future
from strandline.client.unread_failures import MAX_REMEMBERED, UnreadFailures

PATIENCE_S = 60
WHERE = Where("t", 0, None, False, (), PATIENCE_S, 0)


def run_of_one() -> tuple[Run, Any]:
    future = send_future(WHERE, (None, b"x"))
    return Run([future]), future


def of_one(make: Callable[[], Any]) -> tuple[Any, Any]:
    sink = make()
    return sink, sink


KINDS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "send": run_of_one,
    "send_many": lambda: of_one(lambda: SendManyFuture(PATIENCE_S, 1)),
    "trio send": lambda: of_one(lambda: Delivery(0)),
    "trio send_many": lambda: of_one(lambda: ManyDelivery(1)),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_many_failures_that_are_read_late_are_not_told(kind: str) -> None:
    failures = UnreadFailures()
    made = [KINDS[kind]() for _ in range(2 * MAX_REMEMBERED)]
    for sink, _ in made:
        sink.failed(KeyError("x"), 1, 0)
        failures.note(sink)
    for _, future in made[3:]:
        assert isinstance(future.exception(), KeyError)
        future.exception()
    told = failures.take()
    assert told is not None and told.failed_records == 3
    for _, future in made:
        future.exception()
    assert failures.take() is None


def test_what_was_told_before_it_was_read_takes_nothing_off_what_comes_later() -> None:
    failures = UnreadFailures()
    many = SendManyFuture(PATIENCE_S, 10)
    for count in (4, 6):
        many.failed(KeyError("x"), count, 0)
        failures.note(many)
        for _ in range(2 * MAX_REMEMBERED):
            sink, _ = run_of_one()
            sink.failed(KeyError("y"), 1, 0)
            failures.note(sink)
        told = failures.take()
        assert told is not None and told.failed_records == 2 * MAX_REMEMBERED + count
    many.exception()
    assert failures.take() is None


@pytest.mark.parametrize("kind", ["send", "send_many"])
def test_a_thread_that_waits_for_the_outcome_has_asked_for_it(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = UnreadFailures()
    sink, future = KINDS[kind]()
    told: list[Any] = []
    waits = threading.Event()
    wait = SendFuture.wait

    def watched(self: Any, timeout_s: float | None) -> bool:
        waits.set()
        return wait(self, timeout_s)

    def flush_at_once(_: Any) -> None:
        failures.note(sink)
        told.append(failures.take())

    future.listen(flush_at_once)  # before whoever waits is woken
    for cls in (SendFuture, SendManyFuture):
        monkeypatch.setattr(cls, "wait", watched)
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(future.exception)
        assert waits.wait(PATIENCE_S)
        sink.failed(KeyError("x"), 1, 0)
        assert isinstance(asked.result(PATIENCE_S), KeyError)
    assert told == [None]
    assert failures.take() is None


def test_who_gave_up_waiting_has_not_asked() -> None:
    failures = UnreadFailures()
    sink, future = run_of_one()
    with pytest.raises(NotSettledYet):
        future.result(0)
    sink.failed(KeyError("x"), 1, 0)
    failures.note(sink)
    assert failures.take() is not None


@pytest.mark.parametrize("kind", ["trio send", "trio send_many"])
async def test_a_task_that_awaits_a_delivery_has_asked_for_it_unless_it_gave_up(
    kind: str, autojump_clock: object
) -> None:
    for is_cancelled in (False, True):
        failures = UnreadFailures()
        sink, delivery = KINDS[kind]()

        async def ask(delivery: Any = delivery) -> None:
            with pytest.raises(KeyError):
                await delivery

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            if is_cancelled:
                nursery.cancel_scope.cancel()
                await trio.lowlevel.cancel_shielded_checkpoint()
                await trio.lowlevel.cancel_shielded_checkpoint()
            sink.failed(KeyError("x"), 1, 0)
            failures.note(sink)
            assert (failures.take() is not None) is is_cancelled
        assert failures.take() is None
