"""What other tools ask for in a znode and this version does not serve: it is left alone, and named."""

from __future__ import annotations

from strandline.controller.tools import Tools


class NotServed:
    """One such znode, in one term."""

    def __init__(self, tools: Tools, path: str) -> None:
        self._tools = tools
        self._path = path

    async def look(self) -> None:
        if await self._tools.store.exists(self._path, self._tools.agenda.watch(self.look)):
            self._tools.log.warning("not served by this version, left alone", path=self._path)
