"""What a controller has written before the last word that was heard of it is late, whatever brought it only now."""

from __future__ import annotations


class LastTold:
    """Of all that a controller orders (invariant 32). Controllers note when they write by a clock of their own, so only
    what one term has written compares; a later term is later. An epoch of a controller comes again where an old copy of
    ZooKeeper is put back: the brokers register anew then, and what was told to an earlier life is forgotten."""

    def __init__(self) -> None:
        self._broker_epoch = -1
        self._at = (-1, 0)

    def is_late(self, broker_epoch: int, controller_epoch: int, told_at_us: int) -> bool:
        """Whether this life of the broker has heard a later one; else this is the last one."""
        at = controller_epoch, told_at_us
        if broker_epoch == self._broker_epoch and at < self._at:
            return True
        self._broker_epoch, self._at = broker_epoch, at
        return False
