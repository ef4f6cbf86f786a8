"""Space that is kept for a segment while it is the active one (`preallocate`).

Kafka makes the file as long as a segment may get and cuts it when it is closed. Here `segment.bytes` are reserved
behind the end of the file (`File.reserve`): its size stays what was written, so recovery, readers and copies of the
folder see nothing of it.

    created         every new active segment reserves; the next one obeys a configuration that was changed. Where so
                    much is not free it goes on without: what is still free is for records (Kafka's file takes no space
                    before it is written, either), and only a write that finds none is an error
    sealed, closed  what is left is given back, before the next segment asks for its own
    cut             likewise, by the truncation itself; the segment goes on without
    loaded          a start reserves nothing, it gives back what a life left that was killed (after an orderly stop
                    nothing is looked for); the active segment goes on without, and the next roll reserves

What the cleaner writes reserves nothing. Where the file system offers no such thing, or has no such space, the key does
nothing, which is said once per log directory. Both ways the system call works on extents: some 3 ms for a GiB on ext4,
less for what is left of a segment that is full, so it is called on the event loop.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing

from strandline.runtime.disk import Disk, File, FolderEntry
from strandline.storage.disk.directory_health import is_about_space
from strandline.storage.disk.storage_context import StorageContext

_UNUSED_BYTES = 64 * 2**10
"""Less behind the end of a file may be how its file system counts."""


def reserve(context: StorageContext, file: File, size_bytes: int) -> bool:
    """Keep so much for a segment that was just created, if it is there. Returns whether it was. OSError from the disk,
    other than that it is full."""
    why = "its file system cannot reserve space: preallocate does nothing there"
    is_reserved = False
    try:
        is_reserved = file.reserve(size_bytes)
    except OSError as error:
        if not is_about_space(error.errno):
            raise
        why = f"{size_bytes} bytes are not free ({error.strerror}): preallocate does nothing until they are"
    directory = context.directory.path
    if not is_reserved and directory not in context.unreservable:
        context.unreservable.add(directory)
        context.report("log-dir-cannot-preallocate", path=directory, why=why)
    return is_reserved


def give_back(disk: Disk, file: File) -> None:
    """Free what is reserved behind the end; the file stays as old as it was. OSError from the disk."""
    mtime_ms = disk.stat_mtime_ms(file.path)
    file.truncate(file.size())
    disk.set_mtime_ms(file.path, mtime_ms)


def give_back_unused(disk: Disk, folder: str, entries: Iterable[FolderEntry]) -> None:
    """After an unclean stop: free what any .log of the folder has reserved. Blocking. OSError from the disk."""
    for entry in entries:
        if entry.name.endswith(".log") and entry.reserved_bytes >= _UNUSED_BYTES:
            with closing(disk.open(f"{folder}/{entry.name}")) as file:
                give_back(disk, file)
