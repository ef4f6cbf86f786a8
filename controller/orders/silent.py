"""Who is registered and does not answer: a broker that died is so until its session ends. Nothing that can stay where
it is should come to rest on it."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

import trio

from strandline.controller.orders.channel import BrokerUnreachable
from strandline.controller.orders.sender import Outbox
from strandline.protocol.messages import OffsetForLeaderEpochRequest
from strandline.protocol.types import ANY_REPLICA

ANSWER_TIMEOUT_MS = 1000
"""A broker that is only busy answers by then, and who waits for this is a client or a broker that wants to stop."""


async def silent_brokers(outbox: Outbox, broker_ids: Collection[int]) -> list[int]:
    """Those of them that do not answer now."""
    answered: dict[int, None] = {}

    async def ask(broker_id: int) -> None:
        with suppress(BrokerUnreachable):
            await outbox.ask(broker_id, OffsetForLeaderEpochRequest(topics=[], replica_id=ANY_REPLICA))
            answered[broker_id] = None

    with trio.move_on_after(ANSWER_TIMEOUT_MS / 1000):
        async with trio.open_nursery() as nursery:
            for broker_id in broker_ids:
                nursery.start_soon(ask, broker_id)
    return [broker_id for broker_id in broker_ids if broker_id not in answered]
