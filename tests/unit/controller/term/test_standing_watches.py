"""A broker that is elected again and again within one session leaves nothing of its earlier terms."""

from __future__ import annotations

import gc
import weakref
from typing import Any

from trio.testing import MockClock

from strandline.controller.standing_watches import StandingWatches
from strandline.protocol import znodes
from strandline.runtime.coordination import WatchEvent


async def test_who_is_elected_again_watches_each_znode_as_often_as_before(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[1]])
    watches = cluster.brokers[1].coordination.link.watches
    before, first_term = {znode: len(found) for znode, found in watches.items()}, weakref.ref(controller.term)
    assert max(before.values()) <= 2 and first_term() is not None
    for epoch in (2, 3, 4):
        await cluster.admin.delete(znodes.CONTROLLER_PATH)
        await cluster.until(lambda epoch=epoch: controller.is_active and controller.epoch == epoch)
        await cluster.come_to_rest()
    assert {znode: len(found) for znode, found in watches.items() if found} == before
    gc.collect()
    assert first_term() is None, "its context stays in memory"


async def test_what_was_watched_in_an_earlier_term_is_heard_in_the_next_one(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[1]])
    await cluster.admin.delete(znodes.CONTROLLER_PATH)
    await cluster.until(lambda: controller.is_active and controller.epoch == 2)
    await cluster.come_to_rest()
    cluster.kill(2)
    await cluster.until(lambda: 2 not in controller.term.context.brokers)
    await cluster.create(controller, "u", [[1]])
    path = znodes.TopicZnode.path("t")
    topic = znodes.TopicZnode.decode(path, (await cluster.admin.get(path)).data)
    await cluster.admin.set(path, znodes.TopicZnode(topic.topic_id, {0: [1], 1: [1]}).encode(), -1)
    await cluster.until(lambda: len(controller.term.context.topics["t"].assignment) == 2)


def test_a_watch_that_was_asked_for_again_while_it_fired_keeps_nothing_in_memory_either() -> None:
    """The client has it once more, since the answer comes behind the event; the next request brings another one."""

    class Looking:
        times = 0

        def look(self, event: WatchEvent) -> None:
            self.times += 1

    looking, watches = Looking(), StandingWatches()
    gone = weakref.ref(looking)
    first, again = (watches.of_data("/t", looking.look) for _ in range(2))
    assert first is again
    first(WatchEvent.CHANGED)
    assert looking.times == 1
    kept = {again, watches.of_data("/t", looking.look)}
    assert len(kept) == 2
    watches.end_term()
    del looking
    gc.collect()
    assert gone() is None
