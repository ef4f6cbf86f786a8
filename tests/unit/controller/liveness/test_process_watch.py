"""The watch on one process: what it makes of refusals, silence, broken connections and answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import structlog
import trio
from trio.testing import MockClock

from strandline.controller.controller_context import LiveBroker
from strandline.controller.liveness.process_watch import ProcessWatch
from strandline.controller.liveness.refusals import FalseAlarms
from strandline.controller.orders.channel import BrokerChannel, BrokerRefusesConnections, BrokerUnreachable
from strandline.protocol.messages import Message, Request
from strandline.runtime.network import Address

REFUSED_MS = 300
BROKER = LiveBroker(2, 20, (), Address("b", 9002))


class Site:
    """The address of a broker: `failure` is what who connects gets; `dials`: when somebody tried. It keeps what a
    watch on it says."""

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.dials: list[float] = []
        self.said: list[tuple[str, float]] = []
        self.channels: list[Channel] = []
        self.witness = True
        self.witness_delay_s = 0.0
        self.false_alarms = FalseAlarms()

    async def connect(self, broker: LiveBroker) -> BrokerChannel:
        await trio.lowlevel.checkpoint()
        assert broker == BROKER
        self.dials.append(trio.current_time())
        if self.failure is not None:
            raise self.failure
        self.channels.append(Channel())
        return self.channels[-1]

    def break_connections(self) -> None:
        for channel in self.channels:
            channel.broken.set()

    def refuse(self) -> None:
        """As a process that is killed."""
        self.failure = BrokerRefusesConnections("refused")
        self.break_connections()

    async def find_witness(self, broker: LiveBroker) -> bool:
        assert broker == BROKER
        await trio.sleep(self.witness_delay_s)
        return self.witness

    def watch(self, *, is_suspected: bool = False) -> ProcessWatch:
        return ProcessWatch(
            BROKER,
            refused_ms=REFUSED_MS,
            connect=self.connect,
            false_alarms=self.false_alarms,
            find_witness=self.find_witness,
            on_gone=lambda broker: self.said.append(("gone", trio.current_time())),
            on_reached=lambda broker: self.said.append(("reached", trio.current_time())),
            log=structlog.wrap_logger(structlog.testing.CapturingLogger()),
            is_suspected=is_suspected,
        )

    @property
    def words(self) -> list[str]:
        return [word for word, _ in self.said]


class Channel:
    def __init__(self) -> None:
        self.broken = trio.Event()
        self.closed = False

    async def request(self, message: Request) -> Message:
        raise AssertionError("a watch asks nothing")

    async def until_broken(self) -> None:
        await self.broken.wait()

    def close(self) -> None:
        self.closed = True


@asynccontextmanager
async def watched() -> AsyncIterator[Site]:
    """A broker that answers, and a watch on it for some time already."""
    site = Site()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(site.watch().run)
        await trio.sleep(5)
        yield site
        nursery.cancel_scope.cancel()
    assert all(channel.closed for channel in site.channels)


async def test_while_the_connection_stands_nobody_is_asked_anything(autojump_clock: MockClock) -> None:
    async with watched() as site:
        await trio.sleep(1000)
        assert (len(site.dials), site.said) == (1, [])


async def test_a_killed_process_is_found_after_three_refusals(autojump_clock: MockClock) -> None:
    async with watched() as site:
        killed_at = trio.current_time()
        site.refuse()
        await trio.sleep(10)
        [(word, at)] = site.said
        assert (word, at) == ("gone", pytest.approx(killed_at + 0.3))
        assert [dial for dial in site.dials if killed_at <= dial <= at] == [
            pytest.approx(killed_at + pause) for pause in (0.0, 0.15, 0.3)
        ]


async def test_a_connection_that_is_closed_and_made_again_means_nothing(autojump_clock: MockClock) -> None:
    async with watched() as site:
        for _ in range(5):
            site.break_connections()
            await trio.sleep(1)
        assert (len(site.dials), site.said) == (6, [])


@pytest.mark.parametrize("refusals", [1, 2])
async def test_who_is_back_before_the_third_refusal_is_not_missed(autojump_clock: MockClock, refusals: int) -> None:
    async with watched() as site:
        site.refuse()
        await trio.sleep(0.15 * (refusals - 1) + 0.05)
        site.failure = None
        await trio.sleep(10)
        assert site.said == []


async def test_silence_is_no_refusal(autojump_clock: MockClock) -> None:
    async with watched() as site:
        site.failure = BrokerUnreachable("no answer within 2 s")
        site.break_connections()
        await trio.sleep(100)
        assert site.said == []
        pauses = [later - earlier for earlier, later in zip(site.dials[-10:], site.dials[-9:], strict=False)]
        assert min(pauses) == 2.0, "who is away is not called all the time"


async def test_silence_between_refusals_begins_the_count_anew(autojump_clock: MockClock) -> None:
    async with watched() as site:
        site.refuse()
        await trio.sleep(0.2)  # two refusals
        site.failure = BrokerUnreachable("no answer within 2 s")
        await trio.sleep(0.2)
        site.failure = BrokerRefusesConnections("refused")
        began_at = trio.current_time()
        await trio.sleep(10)
        [(word, at)] = site.said
        assert word == "gone"
        assert at >= began_at + 0.3


async def test_after_a_false_alarm_the_next_one_takes_twice_as_long(
    autojump_clock: MockClock,
) -> None:
    async with watched() as site:
        for expected_s in (0.3, 0.6, 1.2):
            refused_at = trio.current_time()
            site.said.clear()
            site.refuse()
            await trio.sleep(3)
            assert site.said == [("gone", pytest.approx(refused_at + expected_s))]
            site.failure = None
            await trio.sleep(3)
            assert site.words == ["gone", "reached"]
        site.said.clear()
        site.refuse()
        await trio.sleep(1000)
        assert site.said == [], "its session alone decides by now"


async def test_where_no_other_broker_can_be_reached_nobody_is_missed_until_one_can(autojump_clock: MockClock) -> None:
    async with watched() as site:
        site.witness = False
        site.refuse()
        await trio.sleep(60)
        assert site.said == []
        site.witness = True
        await trio.sleep(2)
        assert site.words == ["gone"]


async def test_a_slow_witness_is_waited_for_but_not_for_ever(autojump_clock: MockClock) -> None:
    async with watched() as site:
        site.witness_delay_s = 1.0
        killed_at = trio.current_time()
        site.refuse()
        await trio.sleep(10)
        assert site.said == [("gone", pytest.approx(killed_at + 1.0))]
        site.failure = None
        await trio.sleep(1)
        site.said.clear()
        site.witness_delay_s = 1000.0
        site.refuse()
        await trio.sleep(10)
        assert site.said == []


async def test_connections_that_break_as_they_are_made_are_not_made_all_the_time(autojump_clock: MockClock) -> None:
    async with watched() as site:

        async def connect_and_break() -> None:
            while True:
                site.break_connections()
                await trio.sleep(0.01)

        began_at, before = trio.current_time(), len(site.dials)
        with trio.move_on_after(30):
            await connect_and_break()
        assert len(site.dials) - before <= (trio.current_time() - began_at) / 0.3 + 1
        assert site.said == []


async def test_who_is_suspected_from_the_beginning_is_not_found_again(autojump_clock: MockClock) -> None:
    site = Site()
    site.failure = BrokerRefusesConnections("refused")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(site.watch(is_suspected=True).run)
        await trio.sleep(5)
        assert site.said == []
        site.failure = None
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert site.words == ["reached"]


async def test_a_watch_that_is_closed_says_nothing_more(autojump_clock: MockClock) -> None:
    site = Site()
    watch = site.watch()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.run)
        await trio.sleep(5)
        site.refuse()
        await trio.sleep(0.2)
        watch.close()
    assert (site.said, site.channels[0].closed) == ([], True)
