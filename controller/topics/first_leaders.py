"""Waiting for the first leaders of new partitions, for who asked for these."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import trio

from strandline.controller.agenda import patience_s
from strandline.controller.orders.sender import Mark
from strandline.controller.tools import Tools
from strandline.protocol.types import TopicPartition


class Standing(NamedTuple):
    """At some moment: what had been queued for each broker, and the leader epochs of some partitions."""

    told: Mark
    leader_epochs: list[int | None]


class FirstLeaders:
    """One term's."""

    def __init__(self, tools: Tools) -> None:
        self._context, self._outbox, self._agenda = tools.context, tools.outbox, tools.agenda

    def standing(self, partitions: Sequence[TopicPartition]) -> Standing:
        """How the partitions stand, and what each broker was to be told by then. To be called within an event."""
        states = map(self._context.states.get, partitions)
        return Standing(self._outbox.mark(), [state.leader_epoch if state else None for state in states])

    async def are_led(self, partitions: Sequence[TopicPartition], standing: Standing, timeout_ms: int) -> bool:
        """Wait until all live brokers know who leads each partition, and nobody has answered that it cannot: what they
        answered is handled before the next turn, and a leader that moved by then is asked about anew. NotController."""
        look = partial(self._look, partitions)
        with trio.move_on_after(patience_s(timeout_ms)):
            while True:
                if not await self._agenda.within(timeout_ms, partial(self._are_told, partitions, standing)):
                    return False
                before, standing = standing, await self._agenda.in_turn(look)
                if standing.leader_epochs == before.leader_epochs and self._are_told(partitions, before):
                    return True
        return False

    async def _look(self, partitions: Sequence[TopicPartition]) -> Standing:
        return self.standing(partitions)

    def why_not_led(self, partitions: Sequence[TopicPartition]) -> str:
        """Why one of them has no leader yet, as far as its brokers say."""
        context = self._context
        unled = (tp for tp in partitions if not context.has_live_leader(tp))
        reasons = (
            f"{tp}: broker {each.broker_id}: {each.why}" for tp in unled for each in context.refused_replicas_of(tp)
        )
        return next(reasons, "not every broker knows it yet")

    def _are_told(self, partitions: Sequence[TopicPartition], standing: Standing) -> bool:
        return all(map(self._context.has_live_leader, partitions)) and self._outbox.told(standing.told)
