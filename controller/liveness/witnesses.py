"""Whether others are out of reach for this broker alone: a refusal may come from a packet filter of its own machine.

Who suspects another broker asks a third one for a connection first. Where none is to be had, nobody is missed: the
sessions decide. Where there is no third one, the refusals have to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import trio

from strandline.controller.controller_context import LiveBroker
from strandline.controller.orders.channel import BrokerUnreachable, ConnectToBroker


async def does_anybody_answer(connect: ConnectToBroker, others: Sequence[LiveBroker]) -> bool:
    """Whether one of these takes a new connection and says who it is; True where there is nobody to ask. The caller
    bounds the time."""
    answers: list[int] = []
    async with trio.open_nursery() as nursery:

        async def ask(other: LiveBroker) -> None:
            with suppress(BrokerUnreachable):
                (await connect(other)).close()
                answers.append(other.broker_id)
                nursery.cancel_scope.cancel()

        for other in others:
            nursery.start_soon(ask, other)
    return bool(answers) or not others
