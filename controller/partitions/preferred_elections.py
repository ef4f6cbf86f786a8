"""Preferred elections: a leader gives way to the replica that should lead, wherever that one is ready.

1 who of the preferred brokers does not answer is asked, beside the events: a leadership that is well where it is does
  not go to a broker that has just died
2 wave by wave, each in its turn among the events: states are written (one epoch on, so the old leader, which may go on
  until it hears of it, commits nothing that the new one lacks) and announced
3 who asked waits a little for all live brokers to have heard of it: whom a client asks then names the new leaders
4 a replica that refused the role after all, or whose broker died, is not reported as elected
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from strandline.controller.orders.silent import silent_brokers
from strandline.controller.partitions.settlement import Settlement
from strandline.controller.planning.preferred_leaders import (
    NotElected,
    leads_as_preferred,
    plan_preferred_leaders,
    preferred_replica,
    why_not_elected,
)
from strandline.controller.tools import Tools
from strandline.protocol.errors import ErrorCode
from strandline.protocol.types import TopicPartition

PARTITIONS_AT_ONCE = 1000
"""In one event; then others take their turn."""
TOLD_TIMEOUT_MS = 1000
"""So long who asked waits for brokers that do not listen: the elections are done, and each broker is told."""
NOT_AVAILABLE = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE

Outcomes = dict[TopicPartition, NotElected | None]
"""Why a partition's preferred replica was not elected; None where it was."""


class PreferredElections:
    """One term's. is_automatic: nobody asked for them."""

    def __init__(self, tools: Tools, settlement: Settlement, *, is_automatic: bool = False) -> None:
        self.is_automatic = is_automatic
        self._context, self._outbox, self._agenda = tools.context, tools.outbox, tools.agenda
        self._settlement = settlement

    async def elect(self, partitions: Sequence[TopicPartition], timeout_ms: int = TOLD_TIMEOUT_MS) -> Outcomes:
        """Have the preferred replicas of these partitions lead, where they can. Not to be called within an event.
        timeout_ms: how long to wait for others to hear of it, at most. NotController."""
        context = self._context
        # 1
        would_lead = {preferred_replica(context, tp) for tp in partitions if not leads_as_preferred(context, tp)}
        silent = await silent_brokers(self._outbox, sorted(would_lead & context.brokers.keys()))
        # 2
        outcomes: Outcomes = {}
        begun: dict[TopicPartition, None] = {}
        for start in range(0, len(partitions), PARTITIONS_AT_ONCE):
            some = partitions[start : start + PARTITIONS_AT_ONCE]
            outcomes |= await self._agenda.in_turn(partial(self._elect, some, silent, begun))
        elected = [tp for tp, why in outcomes.items() if why is None]
        if elected:
            # 3
            mark = self._outbox.mark()
            await self._agenda.within(min(timeout_ms, TOLD_TIMEOUT_MS), lambda: self._outbox.told(mark))
            # 4
            outcomes |= await self._agenda.in_turn(partial(self._look_again, elected, silent))
        return outcomes

    async def _elect(
        self, partitions: Sequence[TopicPartition], silent: Sequence[int], begun: dict[TopicPartition, None]
    ) -> Outcomes:
        """One wave. begun: what was tried here before, when the connection broke: led by now means elected."""
        outcomes = self._outcomes(partitions, silent)
        doubtful = [tp for tp, why in outcomes.items() if why is not None and why.code is NOT_AVAILABLE]
        if doubtful:  # it may be in sync since, and its leader's word of that is still under way
            await self._settlement.refresh(doubtful)
            outcomes |= self._outcomes(doubtful, silent)
        begun.update((tp, None) for tp, why in outcomes.items() if why is None)
        tried = [tp for tp in partitions if tp in begun]
        planner = partial(plan_preferred_leaders, self._context, silent)
        await self._settlement.settle_and_announce(tried, planner)
        return outcomes | {tp: self._outcome(tp, silent) for tp in tried}

    def _outcomes(self, partitions: Sequence[TopicPartition], silent: Sequence[int]) -> Outcomes:
        return {tp: why_not_elected(self._context, silent, tp) for tp in partitions}

    async def _look_again(self, partitions: Sequence[TopicPartition], silent: Sequence[int]) -> Outcomes:
        return {tp: self._outcome(tp, silent) for tp in partitions}

    def _outcome(self, tp: TopicPartition, silent: Sequence[int]) -> NotElected | None:
        """What became of one that was tried."""
        if leads_as_preferred(self._context, tp):
            return None
        unwritten = NotElected(NOT_AVAILABLE, f"the state of {tp} cannot be written")
        return why_not_elected(self._context, silent, tp) or unwritten
