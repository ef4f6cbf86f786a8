"""`/admin/preferred_replica_election`: another tool asks for preferred leaders. They are elected, then the znode goes,
so that it may be asked again; a controller that ends in between leaves it to the next one, which finds less to do.

What nobody understands, and partitions that do not exist, are named in the log, and go with it: nothing would come of
them later, and while the znode stands nobody can ask for anything else.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

from strandline.controller.agenda import NotController
from strandline.controller.partitions.preferred_elections import Outcomes, PreferredElections
from strandline.controller.tools import Tools
from strandline.protocol.types import TopicPartition
from strandline.protocol.znodes import InvalidZnode, PreferredReplicaElectionZnode
from strandline.runtime.coordination import BadVersion, Delete, NoNode, TransactionFailed, Znode

MAX_PARTITIONS_NAMED = 20


class AskedElections:
    """One term's."""

    def __init__(self, tools: Tools, elections: PreferredElections) -> None:
        self._tools = tools
        self._elections = elections
        self._is_electing = False

    async def look(self) -> None:
        """Set the watch, read, and begin. Elections ask brokers first, which no event should wait for, so they go on
        beside the events; meanwhile nothing else is begun."""
        if self._is_electing:
            return
        path = PreferredReplicaElectionZnode.PATH
        znode = await self._read()
        if znode is None:
            return
        try:
            asked = PreferredReplicaElectionZnode.decode(path, znode.data).partitions
        except InvalidZnode as error:
            self._tools.log.error("what is asked for cannot be read, and is removed", path=path, error=str(error))
            asked = []
        self._is_electing = True
        self._tools.agenda.start(partial(self._elect, list(dict.fromkeys(asked)), znode.stat.mzxid))

    async def _read(self) -> Znode | None:
        return await self._tools.store.watched(PreferredReplicaElectionZnode.PATH, self._tools.agenda.watch(self.look))

    async def _elect(self, partitions: list[TopicPartition], mzxid: int) -> None:
        agenda = self._tools.agenda
        try:
            self._report(await self._elections.elect(partitions))
            await agenda.in_turn(partial(self._remove, mzxid))
        except NotController:
            pass  # the next controller goes on
        except Exception:
            self._tools.log.exception("elections that were asked for in a znode failed, and are repeated")
            agenda.later(self.look)
        else:
            agenda.put(self.look)  # it may be there again: nobody looked meanwhile
        finally:
            self._is_electing = False

    async def _remove(self, mzxid: int) -> None:
        """Unless it is another one by now, which the next look finds. Versions do not tell: when the answer to this
        write was lost, it may be gone, and asked for again at version 0."""
        znode = await self._read()
        if znode is None or znode.stat.mzxid != mzxid:
            return
        try:
            await self._tools.store.fenced([Delete(PreferredReplicaElectionZnode.PATH, znode.stat.version)])
        except TransactionFailed as error:
            if not isinstance(error.cause, BadVersion | NoNode):
                raise error.cause from error

    def _report(self, outcomes: Outcomes) -> None:
        refused = {str(tp): why for tp, why in outcomes.items() if why is not None}
        counts = Counter(why.code.name for why in refused.values())
        elected = len(outcomes) - len(refused)
        self._tools.log.info("preferred leaders were asked for", elected=elected, others=dict(counts))
        named = {tp: why.text for tp, why in refused.items() if why.code.name != "ELECTION_NOT_NEEDED"}
        if named:
            first = dict(list(named.items())[:MAX_PARTITIONS_NAMED])
            self._tools.log.warning("preferred leaders were not elected", count=len(named), first=first)
