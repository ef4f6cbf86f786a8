"""File regions on their way to a peer: promised in a response's header, sent when their turn comes.

A region is *cold* when sending it would make the event loop wait for the disk. A fetch warms what it promises before it
answers; a peer that reads slowly may let pages leave the cache again, so the writer of its connection looks once more
before each of its turns. Warming is reading, in a thread.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial

from strandline.runtime.disk import Buffer, FileRegion
from strandline.runtime.environment import Blocking

COLD_DISTANCE_BYTES = 32 * 2**20
"""Reads closer than this to the end of their file are taken as resident; others are probed."""

Piece = Buffer | FileRegion
"""Of what is sent."""
Warm = Callable[[FileRegion], Awaitable[None]]
"""Brings a region into the page cache, off the event loop. OSError from the disk."""


class StaleRegion(Exception):
    """A file region that was promised to the peer no longer holds the promised bytes."""


def is_cold(region: FileRegion) -> bool:
    """Whether sending this region would wait for the disk; near the end of its file it does not."""
    if region.file.size() - region.position < COLD_DISTANCE_BYTES:
        return False
    return not region.file.is_resident(region.position, region.length)


def cold_ahead(pieces: Iterable[Piece], sent_bytes: int, turn_bytes: int) -> list[FileRegion]:
    """What of the next `turn_bytes` is cold. `sent_bytes`: of the first piece, if that is a region."""
    cold = []
    for piece in pieces:
        if turn_bytes <= 0:
            break
        if not isinstance(piece, FileRegion):
            turn_bytes -= len(piece)
            continue
        part = FileRegion(piece.file, piece.position + sent_bytes, min(piece.length - sent_bytes, turn_bytes))
        with suppress(OSError):  # sending it will fail as well
            if not piece.is_stale and is_cold(part):
                cold.append(part)
        turn_bytes -= part.length
        sent_bytes = 0
    return cold


def read_through(region: FileRegion) -> None:
    """Bring a region into the page cache by reading it. Blocking. OSError."""
    position, end = region.position, region.position + region.length
    while position < end:
        data = region.file.pread(min(2**20, end - position), position)
        if not data:
            return
        position += len(data)


def read_whole(region: FileRegion) -> bytes:
    """The bytes of a small region. StaleRegion; OSError."""
    if region.is_stale:
        raise StaleRegion(f"{region.file.path} was truncated under a response")
    data = region.file.pread(region.length, region.position)
    if len(data) < region.length:
        raise StaleRegion(f"{region.file.path} ends at {region.position + len(data)}, inside a response")
    return data


async def read_here(region: FileRegion) -> None:
    """`Warm` where nothing else runs that would have to wait."""
    read_through(region)


def warm_in_threads(blocking: Blocking) -> Warm:
    """`Warm` in threads of the log directory that the region's log lies in."""

    return partial(_warm, blocking)


async def _warm(blocking: Blocking, region: FileRegion) -> None:
    folder = region.file.path.rpartition("/")[0]
    await blocking.run_in(folder.rpartition("/")[0], read_through, region)
