"""Writing again what may stand in the page cache only, after a life in which the disk failed to take it.

After a failed fsync Linux calls the pages clean: they are read back as they were, no later fsync writes them, and one
day they are dropped or the power fails (ATC'20). So each byte from the recovery point's segment on, once recovery has
checked it, is read and written over itself, which makes its page dirty anew, and then synced. In place, since a disk
that failed may be full; a crash in between leaves, byte for byte, what was there before or what is meant to be there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.runtime.disk import write_whole
from strandline.storage.disk.storage_context import StorageContext

if TYPE_CHECKING:
    from strandline.storage.log.log import Log

CHUNK_BYTES = 2**20


def write_again(context: StorageContext, log: Log) -> None:
    """Do it for one log that has just been loaded. Blocking. OSError from the disk."""
    written_bytes = 0
    for path in log.segments.file_paths(log.recovery_point - 1):  # the files that a flush would sync
        try:
            file = context.disk.open(path)
        except FileNotFoundError:  # an index that has no entry yet
            continue
        try:
            end, position = file.size(), 0
            while position < end:
                data = file.pread(min(CHUNK_BYTES, end - position), position)
                write_whole(file, data, position)
                position += len(data)
            file.fsync()
            written_bytes += end
        finally:
            file.close()
    context.disk.fsync_dir(log.segments.folder)
    context.report("log-written-again", log=str(log), recovery_point=log.recovery_point, written_bytes=written_bytes)
