"""What an earlier attempt of a task has written, as a multiset of digests: its rows are not written again. Pure.

Rows of one task come in any order the second time (a shuffle fetches in the order of arrival), so they are told by what
they hold. 20 bytes a row: a task that is repeated behind ten million rows stays small.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

import numpy as np

from strandline.client.accumulator import Header
from strandline.protocol.records.columnar import Flags

Digests = np.ndarray[tuple[int, ...], np.dtype[np.bytes_]]

DIGEST_BYTES = 16
"""With 64 bits, two of ten million rows would be taken for one another once in a few hundred thousand times."""

_DIGEST = np.dtype(f"S{DIGEST_BYTES}")
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
    """Digests, each as often as rows of it are still to come by."""

    def __init__(self) -> None:
        self.left = 0
        """Rows in all."""
        self._digests = np.empty(0, dtype=_DIGEST)
        """Ascending, those of equal rows side by side."""
        self._taken = np.empty(0, dtype=np.int32)
        """Beside the first of equal ones: how many of them have come by."""

    def add(self, digests: bytearray) -> None:
        """One behind the other. They are taken over, and sorted where they are: as objects of their own they would take
        four times as much."""
        more = np.frombuffer(digests, dtype=_DIGEST)
        if not len(more):
            return
        self.left += len(more)
        self._digests = np.concatenate([self._still_to_come(), more]) if len(self._digests) else more
        self._digests.sort()
        self._taken = np.zeros(len(self._digests), dtype=np.int32)

    def _still_to_come(self) -> Digests:
        firsts = np.flatnonzero(self._taken)
        is_left = np.ones(len(self._digests), dtype=np.bool_)
        for first, count in zip(firsts.tolist(), self._taken[firsts].tolist(), strict=True):
            is_left[first : first + count] = False
        return self._digests[is_left]

    def take(self, digests: Sequence[bytes]) -> Flags:
        """For each whether a row of it was left, which does not count any more then."""
        wanted = np.frombuffer(b"".join(digests), dtype=_DIGEST)
        firsts = np.searchsorted(self._digests, wanted, "left")
        counts = np.searchsorted(self._digests, wanted, "right") - firsts
        rows = np.flatnonzero(counts)
        rows = rows[np.argsort(firsts[rows], kind="stable")]  # equal ones side by side
        firsts, counts = firsts[rows], counts[rows]
        _, begins, sizes = np.unique(firsts, return_index=True, return_counts=True)
        equal_before = np.arange(len(rows)) - np.repeat(begins, sizes)
        is_left = self._taken[firsts] + equal_before < counts
        np.add.at(self._taken, firsts[is_left], 1)
        self.left -= int(is_left.sum())
        is_taken = np.zeros(len(digests), dtype=np.bool_)
        is_taken[rows[is_left]] = True
        return is_taken
