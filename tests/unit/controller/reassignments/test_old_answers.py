"""Who answered a question that nobody had use for is asked again when somebody is to go."""

from __future__ import annotations

from typing import Any

import trio
from trio.testing import MockClock

from support.scripted_moves import TP, alter, check_moved


async def test_what_was_answered_long_ago_counts_no_more(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2, 9)
    controller = await cluster.controller_on(9, failure_detection_refused_ms=0)
    await cluster.create(controller, "t", [[1]])
    await alter(controller, {TP: [2]})
    await cluster.come_to_rest()
    cluster.brokers[2].gate = trio.Event()
    await cluster.leader_writes_isr("t", 0, [1, 2])
    await trio.sleep(0.3)  # it is asked, and the leader takes it out of the ISR again before it answers
    await cluster.leader_writes_isr("t", 0, [1])
    await trio.sleep(0.3)
    cluster.brokers[2].gate.set()
    await trio.sleep(10)
    cluster.brokers[2].gate = trio.Event()
    await cluster.leader_writes_isr("t", 0, [1, 2])
    await cluster.come_to_rest()
    assert (await cluster.state("t")).leader == 1, "the other one is silent"
    cluster.brokers[2].gate.set()
    await check_moved(cluster, [2])
