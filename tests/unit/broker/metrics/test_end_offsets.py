"""Where partitions of others end is asked in the background, while somebody wants to know, and of nobody else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import trio
from trio.testing import MockClock

from strandline.broker.metrics.end_offsets import (
    GOOD_FOR_S,
    INTEREST_S,
    INTERVAL_S,
    MAX_ASKED,
    MAX_PARTITIONS,
    TIMEOUT_S,
    EndOffsets,
)
from strandline.protocol.types import TopicPartition

HERE, OTHER, LOST = (TopicPartition(name, 0) for name in ("here", "other", "lost"))
LEADERS = {"here": 1, "other": 2, "slow": 3, "many": 2}


class Site:
    """Broker 1, which leads `here`. Broker 3 never answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.end = 10
        led = SimpleNamespace(leadership=object(), high_watermark=7)
        metadata = SimpleNamespace(partition=self.metadata)
        replicas = SimpleNamespace(partitions={HERE: led}, metadata=metadata, broker_id=1)
        self.ends = EndOffsets(cast(Any, replicas), self.ask)

    def metadata(self, topic: str, _: int) -> Any:
        return SimpleNamespace(leader=LEADERS[topic]) if topic in LEADERS else None

    async def ask(self, leader: int, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        self.asked.append((leader, len(partitions)))
        if leader == 3:
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()
        return dict.fromkeys(partitions, self.end)


async def test_what_is_led_here_is_known_and_asked_of_nobody(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    site = Site()
    nursery.start_soon(site.ends.run)
    assert site.ends.of(HERE) == 7
    await trio.sleep(3 * INTERVAL_S)
    assert not site.asked


async def test_it_is_asked_again_and_again_until_nobody_wants_to_know(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    site = Site()
    nursery.start_soon(site.ends.run)
    assert site.ends.of(OTHER) is None and site.ends.of(LOST) is None
    await trio.sleep(0.1)
    assert site.ends.of(OTHER) == 10
    site.end = 11
    await trio.sleep(INTERVAL_S)
    assert site.ends.of(OTHER) == 11
    await trio.sleep(INTEREST_S + 2 * INTERVAL_S)
    count = len(site.asked)
    await trio.sleep(10 * INTERVAL_S)
    assert len(site.asked) == count
    assert site.ends.of(OTHER) is None, "what was found long ago is not told"
    await trio.sleep(0.1)
    assert site.ends.of(OTHER) == 11


async def test_a_silent_leader_keeps_nobody_waiting(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    site = Site()
    nursery.start_soon(site.ends.run)
    slow = TopicPartition("slow", 0)
    with trio.move_on_after(GOOD_FOR_S):
        while True:
            site.ends.of(slow)
            site.ends.of(OTHER)
            await trio.sleep(1)
    assert site.ends.of(OTHER) == 10 and site.ends.of(slow) is None
    asked_other = sum(leader == 2 for leader, _ in site.asked)
    assert asked_other >= GOOD_FOR_S / (INTERVAL_S + TIMEOUT_S) - 1


async def test_how_much_is_asked_is_bounded(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    site = Site()
    for number in range(MAX_PARTITIONS + 100):
        site.ends.of(TopicPartition("many", number))
    nursery.start_soon(site.ends.run)
    await trio.sleep(1)
    assert sum(count for _, count in site.asked) == MAX_PARTITIONS
    assert max(count for _, count in site.asked) == MAX_ASKED
