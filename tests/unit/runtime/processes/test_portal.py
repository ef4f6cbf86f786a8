"""The way from threads into the event loop: results, deadlines, bounded mail, and its end."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import trio
import trio.testing

from strandline.runtime.processes.mailbox import Mailbox
from strandline.runtime.processes.outcomes import Outcome
from strandline.runtime.processes.portal import CallTimedOut, Portal, PortalClosed

PATIENCE_S = 60


@pytest.fixture
def portal() -> Iterator[Portal]:
    acquired = Portal.acquire()
    yield acquired
    acquired.release()
    assert not acquired._thread.is_alive()


def test_a_call_returns_the_result_or_raises_the_exception(portal: Portal) -> None:
    async def double(number: int) -> int:
        await trio.lowlevel.checkpoint()
        return 2 * number

    async def fail() -> None:
        raise KeyError("x")

    assert portal.call(double, 21, timeout_s=PATIENCE_S) == 42
    with pytest.raises(KeyError):
        portal.call(fail, timeout_s=PATIENCE_S)
    assert portal.call(double, 1, timeout_s=PATIENCE_S) == 2, "a failed call ends nothing else"


@pytest.mark.parametrize("failure", [SystemExit("x"), asyncio.CancelledError("x")], ids=repr)
def test_what_would_end_the_program_does_so_where_the_call_was_made(portal: Portal, failure: BaseException) -> None:
    async def fail() -> None:
        raise failure

    with pytest.raises(type(failure)):
        portal.call(fail, timeout_s=PATIENCE_S)
    portal.call(trio.lowlevel.checkpoint, timeout_s=PATIENCE_S)


def test_all_users_share_one_thread_and_the_last_one_ends_it() -> None:
    first, second = Portal.acquire("first"), Portal.acquire("second")
    assert first is second
    for _ in range(2):
        first.release("first")
    assert first._thread.is_alive()
    second.release("second")
    assert not first._thread.is_alive()
    with pytest.raises(PortalClosed):
        first.call(trio.lowlevel.checkpoint, timeout_s=1)


def test_a_call_that_takes_too_long_is_cancelled(portal: Portal) -> None:
    cancelled = threading.Event()

    async def wait() -> None:
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()

    with pytest.raises(CallTimedOut):
        portal.call(wait, timeout_s=0.01)
    assert cancelled.wait(PATIENCE_S)


def test_an_interrupt_that_wakes_nobody_ends_a_call_all_the_same(portal: Portal) -> None:
    started, cancelled = threading.Event(), threading.Event()

    async def wait() -> None:
        started.set()
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()

    def interrupt() -> None:
        """This thread gets the signal, so the main thread, whose it is to raise KeyboardInterrupt, sleeps on."""
        started.wait(PATIENCE_S)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        portal.call(wait, timeout_s=60 * PATIENCE_S)
    assert cancelled.wait(PATIENCE_S)
    thread.join()


def test_stopping_ends_waiting_calls() -> None:
    portal = Portal()
    started = threading.Event()
    outcome: Outcome[type] = Outcome()

    async def wait() -> None:
        started.set()
        await trio.sleep_forever()

    def call() -> None:
        try:
            portal.call(wait, timeout_s=PATIENCE_S)
        except BaseException as error:
            outcome.settle(type(error))

    thread = threading.Thread(target=call)
    thread.start()
    assert started.wait(PATIENCE_S)
    portal.stop()
    assert outcome.wait(PATIENCE_S)
    assert outcome.result() is PortalClosed
    thread.join(PATIENCE_S)


@dataclass
class Budget:
    used_bytes: int = 0
    waiting_bytes: int = 0


def test_mail_arrives_in_order_and_a_full_box_refuses_in_time(portal: Portal) -> None:
    async def make() -> Mailbox[int]:
        return Mailbox(portal, 10, 100, Budget())

    mailbox = portal.call(make, timeout_s=PATIENCE_S)
    assert all(mailbox.put(number, 2, 1, 0.0) for number in range(5))
    assert not mailbox.put(99, 1, 1, 0.01)
    assert portal.call(mailbox.take_all, timeout_s=PATIENCE_S) == [0, 1, 2, 3, 4]
    assert mailbox.put(5, 1000, 1, 0.0), "one item that counts as many fits"
    assert not mailbox.put(6, 1, 1, 0.0)
    assert mailbox.close() == [5]
    with pytest.raises(PortalClosed):
        mailbox.put(7, 1, 1, 0.0)


def test_bytes_count_until_they_are_released_together_with_what_is_held_elsewhere(portal: Portal) -> None:
    budget = Budget()

    async def make(waits_for_bytes: bool) -> Mailbox[int]:
        return Mailbox(portal, 10, 100, budget, waits_for_bytes=waits_for_bytes)

    mailbox, impatient = (portal.call(make, waits, timeout_s=PATIENCE_S) for waits in (True, False))
    assert mailbox.put(0, 1, 300, 0.0), "what is larger than all there may be has its turn"
    assert not mailbox.put(1, 1, 1, 0.01)
    assert not impatient.put(1, 1, 1, PATIENCE_S), "nobody waits for bytes there"
    assert portal.call(mailbox.take_all, timeout_s=PATIENCE_S) == [0]
    assert not mailbox.put(1, 1, 1, 0.01), "it is still held"
    mailbox.release(300)
    budget.used_bytes = 60
    assert mailbox.put(1, 1, 40, 0.0)
    assert not mailbox.put(2, 1, 1, 0.01)
    assert portal.call(mailbox.take_all, timeout_s=PATIENCE_S) == [1]
    mailbox.release(40)
    budget.used_bytes = 100
    assert not mailbox.put(2, 1, 300, 0.01), "everything is used up"
    freed = threading.Timer(0.05, lambda: (setattr(budget, "used_bytes", 0), mailbox.tell_of_bytes()))
    freed.start()
    assert mailbox.put(2, 1, 100, PATIENCE_S)
    freed.join()


def test_a_waiting_sender_goes_on_when_the_box_is_emptied(portal: Portal) -> None:
    async def make() -> Mailbox[int]:
        return Mailbox(portal, 1, 100, Budget())

    mailbox = portal.call(make, timeout_s=PATIENCE_S)
    sender = threading.Thread(target=lambda: [mailbox.put(number, 1, 1, PATIENCE_S) for number in range(100)])
    sender.start()
    taken: list[int] = []
    while len(taken) < 100:
        taken += portal.call(mailbox.take_all, timeout_s=PATIENCE_S)
        mailbox.keep(0)
    sender.join(PATIENCE_S)
    assert taken == list(range(100))


def test_bytes_that_an_interrupted_sender_left_counted_keep_nobody_out(portal: Portal) -> None:
    budget = Budget()

    async def make() -> Mailbox[int]:
        return Mailbox(portal, 10, 100, budget)

    mailbox = portal.call(make, timeout_s=PATIENCE_S)
    portal.post(portal.spawn, mailbox.take_all)
    budget.waiting_bytes += 100  # and the item was never appended
    assert mailbox.put(1, 1, 50, PATIENCE_S)
    mailbox.close()


def test_what_is_dealt_with_where_it_arrives_is_alone_and_overtakes_nothing(portal: Portal) -> None:
    seen: list[str] = []
    goes_on = trio.Event()

    def take_now(number: int) -> bool:
        if number != 0:
            seen.append(f"{number} at once")
        return number != 0

    async def make() -> Mailbox[int]:
        return Mailbox(portal, 10, 100, Budget(), take_now=take_now)

    async def take() -> None:
        for _ in range(3):
            numbers = await mailbox.take_all()
            await goes_on.wait()
            seen.append(f"{numbers} taken")

    def put(*numbers: int) -> None:
        async def put_all() -> None:
            for number in numbers:
                mailbox.put(number, 1, 1, 0.0)
            await trio.testing.wait_all_tasks_blocked()

        portal.call(put_all, timeout_s=PATIENCE_S)

    mailbox = portal.call(make, timeout_s=PATIENCE_S)
    portal.post(portal.spawn, take)
    put(0)
    put(1)  # alone, too, but what was taken before it is still worked on
    portal.post(goes_on.set)
    put()
    assert seen == ["[0] taken", "[1] taken"]
    put(2)
    put(3, 4)
    assert seen[2:] == ["2 at once", "[3, 4] taken"]
    assert mailbox.is_empty
    mailbox.close()


class Changing(deque[int]):
    """As if another thread took an item out of it at the worst moment."""

    was_changed = False

    def __len__(self) -> int:
        return super().__len__() + 1

    def remove(self, item: int, /) -> None:
        was_changed, self.was_changed = self.was_changed, True
        if not was_changed:
            raise IndexError("deque mutated during remove().")
        super().remove(item)


def test_a_mailbox_is_emptied_and_closed_while_others_take_back_what_they_put_in(portal: Portal) -> None:
    async def main() -> None:
        mailbox: Mailbox[int] = Mailbox(portal, 10, 100, Budget())
        mailbox._items = items = Changing([1, 2, 3])
        with pytest.raises(PortalClosed):
            mailbox._take_back(2)
        assert mailbox.close() == [1, 3]
        mailbox._take_back(3)
        assert not [*items]

    portal.call(main, timeout_s=PATIENCE_S)
