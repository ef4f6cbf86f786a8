"""ControlledShutdown: leadership moves away from a broker that is about to stop.

1 who else does not answer now is asked: nothing should rest on them alone
2 in its turn among the events, leaders and ISRs change wherever another replica can stay, and that is announced
3 the answer, which says what the broker still leads, waits a little for all live brokers to have heard of it
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from strandline.controller.orders.broker_orders import OrderBuilder
from strandline.controller.orders.sender import Mark
from strandline.controller.orders.silent import silent_brokers
from strandline.controller.partitions.settlement import Settlement
from strandline.controller.planning.planner import plan_controlled_shutdown, still_led
from strandline.controller.tools import Tools
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import ControlledShutdownRequest, ControlledShutdownResponse

HANDOVER_TOLD_TIMEOUT_MS = 1000
"""So long a broker that wants to stop waits for others to hear of its successors; it would be a pity, no loss."""


class ControlledShutdown:
    """One term's."""

    def __init__(self, tools: Tools, settlement: Settlement) -> None:
        self._context, self._outbox = tools.context, tools.outbox
        self._agenda, self._log = tools.agenda, tools.log
        self._settlement = settlement

    async def answer(self, request: ControlledShutdownRequest) -> ControlledShutdownResponse:
        """What the broker still leads, once all live brokers know (or some do not listen): whom a client asks after the
        stop names the new leaders. NotController."""
        # 1
        others = [broker_id for broker_id in self._context.brokers if broker_id != request.broker_id]
        silent = await silent_brokers(self._outbox, others)
        # 2
        response, mark = await self._agenda.in_turn(partial(self._hand_over, request, silent))
        # 3
        await self._agenda.within(HANDOVER_TOLD_TIMEOUT_MS, lambda: self._outbox.told(mark))
        return response

    async def _hand_over(
        self, request: ControlledShutdownRequest, silent: Sequence[int]
    ) -> tuple[ControlledShutdownResponse, Mark]:
        context, leaving = self._context, request.broker_id
        # Who is suspected may ask, too: what it led has moved by then, wherever that could be.
        broker = context.brokers.get(leaving) or context.suspects.get(leaving)
        if broker is None:
            return ControlledShutdownResponse(ErrorCode.BROKER_NOT_AVAILABLE, []), {}
        if request.broker_epoch not in (-1, broker.epoch):
            return ControlledShutdownResponse(ErrorCode.STALE_BROKER_EPOCH, []), {}
        if context.shutting_down.get(leaving) != broker.epoch:
            self._log.info("controlled shutdown", broker=leaving)
            context.shutting_down[leaving] = broker.epoch

        # What it leads goes first, all the way: clients wait for that.
        led = dict.fromkeys(context.leads(leaving))
        followed = [tp for tp in context.partitions_on(leaving) if tp not in led and tp in context.states]
        planner = partial(plan_controlled_shutdown, context, leaving, silent)
        changed = await self._settlement.settle([*led, *followed], planner)
        builder = OrderBuilder(context)
        builder.leadership(changed)
        builder.metadata(changed)
        # What it follows it stops following: it would only be waited for. What it led it follows, until it stops.
        builder.stop(leaving, [tp for tp in followed if leaving not in context.states[tp].isr])
        self._outbox.send(builder)
        self._settlement.note_announced(changed)
        remaining = [(tp.topic, tp.partition) for tp in still_led(context, leaving)]
        return ControlledShutdownResponse(ErrorCode.NONE, remaining), self._outbox.mark()
