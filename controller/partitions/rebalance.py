"""Automatic rebalance: step 11 of the fail-over (reference text 000). Leaderships that went elsewhere while a broker
was away come back to it: every `leader.imbalance.check.interval.seconds`, for each broker of which more than
`leader.imbalance.per.broker.percentage` of the partitions that prefer it are led elsewhere.

Only a broker that has lived one life since the look before gets any back. So nothing comes back to the brokers of a
rolling restart while it is still under way, unless it takes longer than that; and one that comes and goes within the
interval, which would cost its partitions two elections each time, gets nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import trio

from strandline.controller.agenda import NotController
from strandline.controller.partitions.preferred_elections import PreferredElections
from strandline.controller.planning.preferred_leaders import plan_rebalance
from strandline.controller.tools import Tools
from strandline.protocol.types import TopicPartition


class Rebalance:
    """One term's."""

    def __init__(self, tools: Tools, elections: PreferredElections) -> None:
        self._tools = tools
        self._elections = elections
        self._lives: Mapping[int, int] = {}
        """Broker id → epoch, of those that lived at the look before."""

    async def run(self) -> None:
        """Look, again and again; from the end of the fail-over on, the first time an interval later."""
        config = self._tools.config
        self._note_lives()
        while True:
            await trio.sleep(config.leader_imbalance_check_interval_seconds)
            try:
                if config.auto_leader_rebalance_enable:
                    await self.look()
            except NotController:
                return
            except Exception:
                self._tools.log.exception("rebalance failed")

    async def look(self) -> None:
        """In its turn among the events, which times it, and then, where there is something to move, wave by wave.
        NotController."""
        partitions = await self._tools.agenda.in_turn(self._plan)
        if not partitions:
            return
        outcomes = await self._elections.elect(partitions)
        elected = sum(why is None for why in outcomes.values())
        self._tools.log.info("leaders rebalanced", elected=elected, not_elected=len(outcomes) - elected)

    async def _plan(self) -> list[TopicPartition]:
        before, lives = self._lives, self._note_lives()
        steady = [broker_id for broker_id, epoch in lives.items() if before.get(broker_id) == epoch]
        percentage = self._tools.config.leader_imbalance_per_broker_percentage
        return plan_rebalance(self._tools.context, steady, percentage)

    def _note_lives(self) -> Mapping[int, int]:
        self._lives = {broker_id: broker.epoch for broker_id, broker in self._tools.context.brokers.items()}
        return self._lives
