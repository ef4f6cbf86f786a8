"""What can go wrong with a log, one class per failure. Each text is one line: which log, what, and the remedy.

`LogStorageError` answers clients with KAFKA_STORAGE_ERROR, `OffsetOutOfRange` with OFFSET_OUT_OF_RANGE; the rest stops
a start (the operator must act) or is repaired by recovery and only reported.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.protocol.errors import ErrorCode
from strandline.runtime.config.values import unusable_folder


class StorageError(Exception):
    """Base class of everything below."""


class OffsetOutOfRange(StorageError):
    """A read outside [log_start_offset, log_end_offset]."""

    def __init__(self, log: str, offset: int, log_start_offset: int, log_end_offset: int) -> None:
        super().__init__(
            f"{log} has no offset {offset}: it holds {log_start_offset} up to {log_end_offset}; "
            "ask ListOffsets where to begin"
        )
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset


class LogStorageError(StorageError):
    """A log cannot be used, or not as it is."""

    def __init__(self, log: str, text: str) -> None:
        super().__init__(text)
        self.log = log


class DiskFailed(LogStorageError):
    """The disk failed under a log. The log refuses further appends: after a failed write or fsync nobody knows what
    the page cache still holds, so it is never retried as if it were clean."""

    def __init__(self, log: str, what: str, cause: BaseException | None = None) -> None:
        reason = f"{what}: {cause}" if cause is not None else what
        super().__init__(log, f"{log} is offline: {reason}; free or replace the disk, then restart the broker")


class LogOffline(LogStorageError):
    """The log, or its directory, failed before."""

    def __init__(self, log: str, failure: LogStorageError | None) -> None:
        text = str(failure)
        super().__init__(log, text if text.startswith(f"{log} ") else f"{log} is offline: {text}")


class UnusableFile(LogStorageError):
    """A file of the log may not be opened, or something else has its name. That is this log's alone: nothing is wrong
    with its disk."""

    def __init__(self, log: str, what: str, cause: BaseException) -> None:
        remedy = "put the file itself there, or move away what is there"
        if isinstance(cause, PermissionError):
            remedy = "let the user that the broker runs as read and write it"
        super().__init__(log, f"{log} is offline: {what}: {cause}; {remedy}, and restart the broker")


class OutOfDescriptors(LogStorageError):
    """No descriptor was left to open a file of the log. Nothing is wrong with log and disk: try again later."""

    def __init__(self, log: str, what: str, cause: BaseException) -> None:
        super().__init__(
            log, f"{log} cannot be used just now: {what}: {cause}; raise the limit of open files (ulimit -n)"
        )


class DiskFull(LogStorageError):
    """The disk has no room for what the log was to take. It keeps what it has: nothing is wrong, try again later."""

    def __init__(self, log: str, what: str, cause: BaseException) -> None:
        super().__init__(
            log, f"{log} takes nothing more just now: {what}: {cause}; free space, and it goes on by itself"
        )


class LogClosed(LogStorageError):
    """The log was closed: its partition was deleted or moved, or the broker is stopping."""

    def __init__(self, log: str) -> None:
        super().__init__(log, f"{log} is closed on this broker; refresh the metadata to find its leader")


class CorruptLog(LogStorageError):
    """Bytes that are no valid batch, found while something was looked up."""

    def __init__(self, log: str, position: int, why: str) -> None:
        super().__init__(
            log,
            f"{log} is damaged at byte {position}: {why}; delete this replica's folder while the broker is stopped, "
            "it is copied again from the leader",
        )
        self.why = f"at byte {position}: {why}"


class TransactionalLog(LogStorageError):
    """The log holds batches of transactions, which cannot be served before read_committed can be."""

    def __init__(self, log: str, offset: int) -> None:
        super().__init__(
            log,
            f"{log} has a batch of a transaction at offset {offset}, and transactions are not served yet; "
            "serve this folder with the Kafka it comes from, or move it out of log.dirs",
        )


class TieredLog(LogStorageError):
    """The log is of a topic with Kafka's `remote.storage.enable`: parts of it may lie where this broker cannot look."""

    def __init__(self, log: str) -> None:
        super().__init__(
            log,
            f"{log} is of a topic with remote.storage.enable, and records in Kafka's remote tier are not served; serve "
            "this folder with the Kafka it comes from, or take that key from the topic where nothing of it was ever "
            "moved there; nothing in it was changed",
        )


class OldFormat(LogStorageError):
    """The log holds messages of format 0 or 1, which are not read."""

    def __init__(self, log: str, offset: int, magic: int) -> None:
        super().__init__(
            log,
            f"{log} has a message of format {magic} at offset {offset}, and formats before 2 are not served; "
            "copy the topic to another one with the Kafka that this folder comes from, or move the folder out of "
            "log.dirs; nothing in it was changed",
        )


class EpochsBeganAnew(LogStorageError):
    """The log has a later leader epoch than its partition's state, so nobody can tell by epochs what of it the others
    have."""

    def __init__(self, log: str, latest: int, leader_epoch: int, leader: int | None) -> None:
        """latest: in the log. leader: who else leads at `leader_epoch`, if anybody does."""
        remedy = f"stop the brokers, set leader_epoch in the partition's state znode to {latest} and start them"
        if leader is not None:
            remedy = (
                f"to go on with what broker {leader} has, stop this broker and move the folder out of log.dirs; to go "
                f"on with this log, stop the brokers, move its folder out of log.dirs of the others, set leader_epoch "
                f"to {latest}, and leader and isr to this broker, in the partition's state znode and start them"
            )
        super().__init__(
            log,
            f"{log} has records of leader epoch {latest}, and its partition is at {leader_epoch}: its state was "
            f"deleted, or ZooKeeper made anew or restored; nothing in it was changed; {remedy}",
        )
        self.latest = latest


class ProducerRefused(StorageError):
    """A batch whose producer epoch or sequence does not continue what its producer has in the log. `code` is what the
    producer is told."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class CorruptSnapshot(StorageError):
    """A producer snapshot that cannot be read; an older one is taken, or the log's own headers."""


class DamagedLog(LogStorageError):
    """Segments that are missing or do not belong together, found at a start: nothing of the log was touched."""

    def __init__(self, log: str, why: str) -> None:
        super().__init__(
            log,
            f"{log} was not loaded: {why}; put the missing files back, or move the folder away while the broker is "
            "stopped: it is copied again from the leader",
        )


class ContradictoryLog(DamagedLog):
    """Batches that are whole stand where they cannot: which of them is right nobody can tell here."""

    def __init__(self, log: str, why: str) -> None:
        LogStorageError.__init__(
            self,
            log,
            f"{log} was not loaded: {why}, and no batch is damaged; serve this folder with the Kafka it comes from, or "
            "move it out of log.dirs: it is copied again from the leader; nothing in it was changed",
        )


class CorruptIndex(StorageError):
    """An index file that does not fit its segment; it is rebuilt from the segment."""


class UnreadableTopicId(LogStorageError):
    """Nobody knows of which topic a log is: nothing of it was touched."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(
            path.rpartition("/")[0],
            f"{path} cannot be read ({why}), so nobody knows of which topic this log is; stop the broker, and remove "
            "the file if the log is of the topic that has its name now, else move the folder out of log.dirs",
        )


class LogDirLocked(StorageError):
    """Another process uses the folder."""

    def __init__(self, path: str) -> None:
        super().__init__(f"log.dirs {path} is in use by another broker; stop that one or choose another folder")


class LogDirUnusable(StorageError):
    """The folder cannot be read or written, or stands twice in the list."""

    def __init__(self, path: str, why: str | OSError) -> None:
        if isinstance(why, OSError):
            super().__init__(str(unusable_folder("log.dirs", path, why)))
        else:
            super().__init__(f"log.dirs {path} cannot be used: {why}; correct log.dirs or the folder")


class NoLogDirLeft(StorageError):
    """Every log directory is offline: the broker cannot go on."""

    def __init__(self, failures: Sequence[LogStorageError]) -> None:
        super().__init__(f"no log directory is left: {'; '.join(str(failure) for failure in failures)}")


class InconsistentMetaProperties(StorageError):
    """A data folder that belongs to another broker or another cluster."""

    def __init__(self, path: str, key: str, found: str, expected: str) -> None:
        super().__init__(
            f"{path}/meta.properties says {key}={found}, this broker has {expected}; "
            "point log.dirs at this broker's own folder or correct the configuration"
        )


class InconsistentTopicId(StorageError):
    """The folder holds another topic of the same name (it was deleted and created again)."""

    def __init__(self, log: str, found: bytes, expected: bytes) -> None:
        super().__init__(
            f"{log} on this disk has topic id {found.hex()}, the cluster says {expected.hex()}; "
            "the folder is of a deleted topic: remove it while the broker is stopped"
        )
        self.found = found
        self.expected = expected


class DuplicateLog(LogStorageError):
    """The same partition in several log directories: nobody here can tell which copy is the outdated one."""

    def __init__(self, log: str, directories: Sequence[str]) -> None:
        super().__init__(
            log, f"{log} lies in {' and in '.join(directories)}; move the outdated copy away and restart the broker"
        )


class NotALog(LogStorageError):
    """Something has the name of a log and is none that may be opened."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(
            path,
            f"{path} is {what}, so it was left alone; put the folder of the log itself there, or move away what is "
            "there, and restart the broker",
        )


class OccupiedName(LogStorageError):
    """What stands in a log's folder by the name of one of its files is no file."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(
            path,
            f"{path}: {what}, so the log was left alone; put the file itself there, or move away what is there, and "
            "restart the broker",
        )


class StrayLog(LogStorageError):
    """A log whose topic id is not its topic's was put aside: of a deleted topic, or its `partition.metadata` is
    damaged."""

    def __init__(self, folder: str, found: str, expected: str, kept_in: str, *, is_credited: bool) -> None:
        """found, expected: topic ids as in `partition.metadata`. is_credited: this broker is in the in-sync set."""
        hold = (
            "; this broker counts as having its records, so it does not host the partition now: the next start without "
            "them takes them as lost, and fetches from other replicas or begins empty where there is none"
        )
        super().__init__(
            folder,
            f"{folder} has topic id {found}, its topic {expected}: it was put aside as {kept_in} and stays there"
            f"{hold if is_credited else ''}; if its topic was deleted while this broker was away, delete it; if not, "
            f"stop the broker, put it back as {folder} and write topic_id: {expected} into its partition.metadata",
        )


class LogExists(StorageError):
    """`create` for a partition that is there already."""


class UnsafePath(StorageError):
    """A name that would lead out of the log directory."""
