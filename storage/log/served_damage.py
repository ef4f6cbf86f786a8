"""Whether bytes that were served from a log are what was once appended: asked when somebody seems not to get past them.

What is sent goes from the page cache to the socket unseen (sendfile), so a flipped bit shows first at the receiver,
who refuses the batch and asks for it again. All that is checked at a receiver is checked here, and the epoch, which
lies outside of the CRC: every batch must carry the one that the epoch cache has for its last offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from strandline.runtime.disk import FileRegion
from strandline.storage.disk.checkpoints import EpochEntry
from strandline.storage.log.leader_epochs import LeaderEpochCache
from strandline.storage.segments.scan import CheckedPrefix, check_batches


class Damage(NamedTuple):
    """Where the first batch begins that is not sound, and why it is not."""

    offset: int
    position: int
    why: str


def find_damage(region: FileRegion, fetch_offset: int, epochs: Sequence[EpochEntry]) -> Damage | None:
    """Check what a fetch at `fetch_offset` is answered with. epochs: of the log when the region was taken. Blocking.
    None: sound, or cut off meanwhile. OSError from the disk."""
    known = LeaderEpochCache(epochs)
    prefix = CheckedPrefix(region.position, 0, -1)
    damage: Damage | None = None
    for position, header in check_batches(region.file, region.position + region.length, prefix):
        epoch = known.epoch_at(header.last_offset)  # its first ones may lie below the log start, whose epochs are gone
        if position == region.position and header.last_offset < fetch_offset:
            why = f"the batch of offset {fetch_offset} says that it ends at {header.last_offset}"
        elif epoch != header.partition_leader_epoch:
            why = f"a batch of epoch {header.partition_leader_epoch} stands where epoch {epoch} wrote"
        else:
            continue
        damage = Damage(max(prefix.next_offset, 0) or fetch_offset, position, why)
        break
    if damage is None and prefix.fault:
        damage = Damage(prefix.next_offset or fetch_offset, prefix.end_position, prefix.fault)
    return None if region.is_stale else damage
