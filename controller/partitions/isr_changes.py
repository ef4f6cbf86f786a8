"""ISR changes that leaders wrote: an event, which `/isr_change_notification` asks for."""

from __future__ import annotations

from strandline.controller.partitions.settlement import Settlement
from strandline.controller.tools import Tools
from strandline.protocol.znodes import ISR_CHANGE_NOTIFICATION_PATH, IsrChangeNotificationZnode


class IsrChanges:
    """One term's."""

    def __init__(self, tools: Tools, settlement: Settlement) -> None:
        self._context, self._store, self._agenda = tools.context, tools.store, tools.agenda
        self._settlement = settlement

    async def look(self) -> None:
        """Read the states that leaders changed again, take out who died before this was heard, tell everybody, remove
        the notifications."""
        paths, notes = await self._store.notifications(
            ISR_CHANGE_NOTIFICATION_PATH, self._agenda.watch(self.look), IsrChangeNotificationZnode.decode
        )
        named = self._context.partitions() if notes is None else (tp for note in notes for tp in note.partitions)
        self._settlement.stale_metadata.update(dict.fromkeys(await self._settlement.read_again(named)))
        await self._settlement.settle_and_announce()
        await self._store.delete_all(paths)
