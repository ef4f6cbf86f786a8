"""What a controller has written before the last word that was heard of it is late, whatever brought it only now."""

from __future__ import annotations


class LastTold:
    """Of all that a controller orders (invariant 32). Controllers note when they write by a clock of their own, so only
    what one term has written compares; a later term is later."""

    def __init__(self) -> None:
        self._at = (-1, 0)

    def is_late(self, controller_epoch: int, told_at_us: int) -> bool:
        """Whether a later one was heard; else this is the last one."""
        at = controller_epoch, told_at_us
        if at < self._at:
            return True
        self._at = at
        return False
