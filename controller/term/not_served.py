"""What other tools ask for in a znode and this version does not serve: it is left alone, and named."""

from __future__ import annotations

from strandline.controller.tools import Tools
from strandline.protocol.znodes import PreferredReplicaElectionZnode


class NotServed:
    """One such znode, in one term."""

    def __init__(self, tools: Tools, znode: type[PreferredReplicaElectionZnode]) -> None:
        self._tools = tools
        self._znode = znode

    async def look(self) -> None:
        path = self._znode.PATH
        if await self._tools.store.asked(path, self._tools.agenda.watch(self.look), self._znode.decode) is not None:
            self._tools.log.warning("not served by this version, left alone", path=path)
