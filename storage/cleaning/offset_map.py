"""Key hash → newest offset, for millions of keys in a fixed piece of memory: three numpy columns, 24 bytes an entry.

Open addressing with double hashing: the place of a key is `(low + i · step) mod slots` for i = 0, 1, 2 …, with a prime
number of slots and a step from the high half, so that every slot is tried. All operations take many keys at once: those
that find their place (or an empty one) in a round are done, the rest goes on to their next one. At the load factor of
0.9 a key needs 2.6 tries on average while the map fills, and one that is not in it 10.
"""

from __future__ import annotations

import numpy as np

from strandline.storage.cleaning.key_hash import I64, U64

ENTRY_BYTES = 24
_MIN_SLOTS = 11


class OffsetMap:
    """Offsets are stored as offset + 1; 0 is an empty slot."""

    def __init__(self, max_bytes: int, load_factor: float, expected: int) -> None:
        """max_bytes: of all slots together. expected: no more keys than this will come, so less may do."""
        affordable = max(_MIN_SLOTS, max_bytes // ENTRY_BYTES)
        needed = max(_MIN_SLOTS, int(expected / load_factor) + 1)
        self._slots = _prime_at_most(min(affordable, 2 * needed))  # there is a prime between n and 2n
        self._low = np.zeros(self._slots, dtype=np.uint64)
        self._high = np.zeros(self._slots, dtype=np.uint64)
        self._offsets = np.zeros(self._slots, dtype=np.int64)
        self._affordable = affordable
        self.capacity = max(1, int(self._slots * load_factor))
        self.size = 0
        """Keys in it."""

    @property
    def used(self) -> float:
        """Which share of the slots that all of the memory would have is taken."""
        return self.size / self._affordable

    def put(self, low: U64, high: U64, offsets: I64) -> None:
        """Note these keys; later ones of the same key win, so offsets have to rise. There must be room for them all
        (`capacity` − `size`), as if none was known yet."""
        assert len(low) <= self.capacity - self.size, "the map is full"
        values = offsets + 1
        slot, step = self._first(low, high)
        waiting: I64 = np.arange(len(low))
        while len(waiting):
            here = slot[waiting]
            found = self._offsets[here]
            claimed = waiting[found == 0]
            if len(claimed):
                # Of several that want one empty slot, the last assignment stands, in all columns.
                places = slot[claimed]
                self._offsets[places] = claimed + 1
                won = claimed[self._offsets[places] == claimed + 1]
                self._low[slot[won]] = low[won]
                self._high[slot[won]] = high[won]
                self.size += len(won)
            mine = (self._low[here] == low[waiting]) & (self._high[here] == high[waiting])
            # A claimed slot holds a number of this wave until its owner, who is among `mine`, writes the offset.
            self._offsets[here[mine]] = values[waiting[mine]]
            waiting = waiting[~mine]
            slot[waiting] = (slot[waiting] + step[waiting]) % self._slots

    def get(self, low: U64, high: U64) -> I64:
        """The newest offset of each key, −1 where the key is unknown."""
        result: I64 = np.full(len(low), -1, dtype=np.int64)
        slot, step = self._first(low, high)
        waiting: I64 = np.arange(len(low))
        while len(waiting):
            here = slot[waiting]
            found = self._offsets[here]
            mine = (self._low[here] == low[waiting]) & (self._high[here] == high[waiting]) & (found > 0)
            result[waiting[mine]] = found[mine] - 1
            waiting = waiting[~mine & (found > 0)]
            slot[waiting] = (slot[waiting] + step[waiting]) % self._slots
        return result

    def _first(self, low: U64, high: U64) -> tuple[I64, I64]:
        """Each key's first slot and the way from one to the next."""
        slots = np.uint64(self._slots)
        return (low % slots).astype(np.int64), (high % (slots - np.uint64(1))).astype(np.int64) + 1


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, int(number**0.5) + 1))


def _prime_at_most(number: int) -> int:
    while not _is_prime(number):
        number -= 1
    return number
