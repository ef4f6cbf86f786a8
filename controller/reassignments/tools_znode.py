"""`/admin/reassign_partitions`: reassignments that tools ask for which have no request for it (Kafka's before 2.4).

What it names and a topic's znode does not say yet is begun from it. A partition is taken out of it when it is done, or
when it cannot be done, which is said in the log; the znode goes with the last of them. One that nobody understands is
named and left alone: whoever wrote it has to mend it.
"""

from __future__ import annotations

import trio

from strandline.controller.reassignments.reassignment_store import Entries, Move
from strandline.controller.reassignments.reassignments import Reassignments
from strandline.controller.reassignments.request_checks import plan_move
from strandline.controller.tools import Tools
from strandline.controller.topics.creation_checks import WORK_PER_STEP
from strandline.protocol.errors import BrokerError
from strandline.protocol.types import TopicPartition
from strandline.protocol.znodes import ReassignPartitionsZnode


class AskedByTools:
    """One term's."""

    def __init__(self, tools: Tools, reassignments: Reassignments) -> None:
        self._tools = tools
        self._reassignments = reassignments
        self._is_there = False
        reassignments.on_done = self.topics_change

    async def look(self) -> None:
        """Level triggered: what is asked for, held against where each partition goes, or is. What moves already goes
        on in any case, so this is how a term begins with it."""
        watch = self._tools.agenda.watch(self.look)
        asked = await self._tools.store.asked(ReassignPartitionsZnode.PATH, watch, ReassignPartitionsZnode.decode)
        self._is_there = asked is not None
        if asked is None:
            await self._reassignments.go_on()
            return
        moves: dict[TopicPartition, Move] = {}
        over: Entries = {}
        refused: dict[TopicPartition, str] = {}
        for number, (tp, target) in enumerate(asked.reassignments.items(), 1):
            move = plan_move(self._tools.context, tp, target)
            if isinstance(move, BrokerError):
                refused[tp] = str(move.args[0])
                over[tp] = list(target)
            elif move.before != move.after:
                moves[tp] = move
            elif not move.before.is_moving:
                over[tp] = list(target)
            if number % WORK_PER_STEP == 0:
                await trio.lowlevel.checkpoint()  # events take their turns: the context stays as it is
        # 1 to 10
        written = await self._reassignments.begin(moves, overrules_tools=False)
        over.update({tp: list(asked.reassignments[tp]) for tp in written.refused})
        self._reassignments.lines.not_begun(refused | written.refused)
        # 11
        if over or not asked.reassignments:
            await self._reassignments.store.take_out(over)

    def topics_change(self) -> None:
        """Partitions have arrived, or topics go: less is to be done. Never waits."""
        if self._is_there:
            self._tools.agenda.put(self.look)
