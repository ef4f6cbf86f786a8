"""What an earlier attempt of a task has written, as a multiset of digests: its rows are not written again. Pure.

Rows of one task come in any order the second time (a shuffle fetches in the order of arrival), so they are told by what
they hold. 24 bytes a row: a task that is repeated behind ten million rows stays small.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

import numpy as np

from strandline.client.accumulator import Header

Halves = np.ndarray[tuple[int, ...], np.dtype[np.uint64]]

DIGEST_BYTES = 16
"""With 64 bits, two of ten million rows would be taken for one another once in a few hundred thousand times."""

_LENGTHS = struct.Struct("<qq?qi")
_HEADER_LENGTHS = struct.Struct("<qq")


def digest(key: bytes | None, value: bytes | None, headers: Sequence[Header], timestamp_ms: int | None = None) -> bytes:
    """Of all that a row holds. `timestamp_ms` None: the row does not say, or the topic puts its own there."""
    lengths = _LENGTHS.pack(
        -1 if key is None else len(key),
        -1 if value is None else len(value),
        timestamp_ms is not None,
        timestamp_ms or 0,
        len(headers),
    )
    parts = [lengths, key or b"", value or b""]
    for name, content in headers:
        encoded = name.encode()
        parts += [_HEADER_LENGTHS.pack(len(encoded), -1 if content is None else len(content)), encoded, content or b""]
    return hashlib.blake2b(b"".join(parts), digest_size=DIGEST_BYTES).digest()


class Claims:
    """Digests, each with how many rows of it are still to come by."""

    def __init__(self) -> None:
        self.left = 0
        """Rows in all."""
        self._heads = np.empty(0, dtype=np.uint64)
        """First halves of the digests, ascending."""
        self._tails = np.empty(0, dtype=np.uint64)
        self._counts = np.empty(0, dtype=np.int64)

    def add(self, digests: bytes | bytearray) -> None:
        """One behind the other: as objects of their own they would take four times as much."""
        heads, tails = _halves(digests)
        if not len(heads):
            return
        self.left += len(heads)
        heads, tails = np.concatenate([self._heads, heads]), np.concatenate([self._tails, tails])
        counts = np.concatenate([self._counts, np.ones(len(heads) - len(self._counts), dtype=np.int64)])
        order = np.lexsort((tails, heads))
        heads, tails, counts = heads[order], tails[order], counts[order]
        is_first = np.ones(len(heads), dtype=bool)
        is_first[1:] = (heads[1:] != heads[:-1]) | (tails[1:] != tails[:-1])
        self._heads, self._tails = heads[is_first], tails[is_first]
        self._counts = np.add.reduceat(counts, np.flatnonzero(is_first))

    def take(self, digests: Sequence[bytes]) -> list[bool]:
        """For each whether a row of it was left, which does not count any more then."""
        heads, tails = _halves(b"".join(digests))
        firsts = np.searchsorted(self._heads, heads, "left")
        ends = np.searchsorted(self._heads, heads, "right")
        taken = [False] * len(digests)
        for row in np.flatnonzero(firsts < ends):
            for place in range(firsts[row], ends[row]):
                if self._tails[place] == tails[row] and self._counts[place]:
                    self._counts[place] -= 1
                    self.left -= 1
                    taken[row] = True
        return taken


def _halves(digests: bytes | bytearray) -> tuple[Halves, Halves]:
    both = np.frombuffer(digests, dtype=np.uint64).reshape(-1, 2)
    return both[:, 0].copy(), both[:, 1].copy()
