"""What brokers leave in a folder of ZooKeeper for whoever is controller: it is handled, then removed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from strandline.controller.tools import Tools

N = TypeVar("N")


class Notifications(Generic[N]):
    """One such folder, in one term. `handle` gets None where one of them cannot be read: anything may be meant."""

    def __init__(
        self,
        tools: Tools,
        folder: str,
        decode: Callable[[str, bytes], N],
        handle: Callable[[Sequence[N] | None], Awaitable[None]],
    ) -> None:
        self._tools = tools
        self.folder = folder
        self._decode = decode
        self._handle = handle

    async def look(self) -> None:
        store = self._tools.store
        paths, found = await store.notifications(self.folder, self._tools.agenda.watch(self.look), self._decode)
        await self._handle(found)
        await store.delete_all(paths)
