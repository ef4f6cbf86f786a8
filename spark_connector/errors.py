"""What can go wrong for a Spark user: a class per failure, with the condition names of Spark's Kafka source.

Spark shows the text of an exception only, so each begins with its condition in brackets, as Spark's own errors do, and
ends with the remedy.
"""

from __future__ import annotations

import warnings

DATA_LOSS_REMEDY = (
    "Some data may have been lost because it is not available any more: it was aged out, or the topic was deleted and "
    "created again. To go on with what is left, set the option failOnDataLoss to false."
)


class SourceError(Exception):
    """Base of the errors of this package; `condition` is the name that Spark users search for."""

    condition = "STRANDLINE_SOURCE"

    def __init__(self, text: str) -> None:
        super().__init__(f"[{self.condition}] {text}")


class InvalidOption(SourceError):
    """An option is missing, contradicts another one, or has a value that cannot be used."""

    condition = "INVALID_SOURCE_OPTION"


class CustomSchema(SourceError):
    """The user gave a schema; the source has one of its own."""

    condition = "CUSTOM_SCHEMA_NOT_SUPPORTED"

    def __init__(self) -> None:
        super().__init__(
            "Strandline source has a fixed schema and cannot be set with a custom one; leave out .schema(…) and select "
            "or cast the columns after .load()"
        )


class UnknownTopic(SourceError):
    """A topic or partition that was named does not exist."""

    condition = "UNKNOWN_TOPIC_OR_PARTITION"


class StartOffsetMismatch(SourceError):
    """The partitions of startingOffsets are not exactly those that are read."""

    condition = "KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED"


class EndOffsetMismatch(SourceError):
    """The partitions of endingOffsets are not exactly those that are read."""

    condition = "KAFKA_END_OFFSET_DOES_NOT_MATCH_ASSIGNED"


class TimestampMismatch(SourceError):
    """The partitions of starting- or endingOffsetsByTimestamp are not exactly those that are read."""

    condition = "KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED"


class MismatchedPartitions(SourceError):
    """Start and end name different partitions."""

    condition = "MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET"


class NoOffsetForTimestamp(SourceError):
    """No record is as young as the starting timestamp, and the strategy is `error`."""

    condition = "KAFKA_NO_OFFSET_FOR_TIMESTAMP"


class StartAfterEnd(SourceError):
    """A range ends before it begins."""

    condition = "RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET"


class UnresolvedStartAfterEnd(SourceError):
    """The options name a start that lies behind their end, whatever the partition holds."""

    condition = "UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET"


class DataLoss(SourceError):
    """Records of the asked range are gone, and failOnDataLoss is true."""

    condition = "KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE"
    remedy = DATA_LOSS_REMEDY

    def __init__(self, text: str) -> None:
        super().__init__(f"{text}. {self.remedy}")


class EndBeyondLog(DataLoss):
    """The asked range reaches beyond the end of its partition. Spark's Kafka source has no other name for it."""

    remedy = (
        "Name an end that the partition has, or latest; where it had more before, its topic was deleted and created "
        "again. To read up to its end, set the option failOnDataLoss to false."
    )


class GoneSincePlanned(DataLoss):
    """A task does not find records any more that were there when its read was planned."""

    remedy = (
        "A DataFrame or a view is planned once for each load(), however often it is asked: if that was a while ago, "
        "load() it again. Otherwise some data may have been lost; to go on with what is left, set the option "
        "failOnDataLoss to false."
    )


class PartitionsDeleted(DataLoss):
    """A stream has read partitions that do not exist any more, that its options name no longer, or whose topic was
    created anew."""

    condition = "KAFKA_DATA_LOSS.PARTITIONS_DELETED"


class PartitionsNotNamed(PartitionsDeleted):
    """A stream has read partitions that its options name no longer. Spark's Kafka source takes them for deleted, and
    has no other name for it."""

    remedy = "Name them again to go on with them. To go on without them, set the option failOnDataLoss to false."


class PartitionOffsetChanged(DataLoss):
    """A partition ends before the offset that a stream has read up to."""

    condition = "KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED"


class AddedPartitionNotFromZero(DataLoss):
    """A partition that a stream found while running has lost its first records already."""

    condition = "KAFKA_DATA_LOSS.ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO"


class InitialOffsetNotFound(DataLoss):
    """A partition that a batch was to read for the first time does not exist any more."""

    condition = "KAFKA_DATA_LOSS.INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS"


class LostInRun(DataLoss):
    """Partitions that were there when a run with Trigger.AvailableNow began do not exist any more."""

    condition = "LOST_TOPIC_PARTITIONS_IN_END_OFFSET_WITH_TRIGGER_AVAILABLENOW"


class EndBehindLatest(DataLoss):
    """A partition ends before an offset that it had when a run with Trigger.AvailableNow began."""

    condition = "END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_LATEST_WITH_TRIGGER_AVAILABLENOW"


class EndBehindRun(DataLoss):
    """A run with Trigger.AvailableNow repeats a batch whose end its partition did not hold any more when it began."""

    condition = "END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_PREFETCHED"


class StartOffsetReset(DataLoss):
    """A stream is to begin at an offset that its partition does not hold."""

    condition = "KAFKA_DATA_LOSS.START_OFFSET_RESET"


class StartBeyondLog(StartOffsetReset):
    """A stream is to begin beyond the end of a partition, where nothing is that could have been lost."""

    remedy = (
        "Name a start that the partition has, or latest; where it had more before, its topic was deleted and created "
        "again. To begin at its end, set the option failOnDataLoss to false."
    )


class UnreadableOffset(SourceError):
    """The checkpoint holds an offset that is not of this source."""

    condition = "UNREADABLE_CHECKPOINT_OFFSET"


class InvalidSinkColumn(SourceError):
    """A column that a sink needs is missing, or one has a type that cannot be written."""

    condition = "INVALID_SINK_COLUMN"


class NullTopic(SourceError):
    """A row names no topic."""

    condition = "KAFKA_NULL_TOPIC_IN_DATA"


class UnsupportedMode(SourceError):
    """A topic cannot be overwritten."""

    condition = "UNSUPPORTED_SAVE_MODE"


class UnsupportedTable(SourceError):
    """A topic was to be a table of Spark's catalog, which keeps options from Python sources when it is used."""

    condition = "UNSUPPORTED_TABLE"

    def __init__(self) -> None:
        super().__init__(
            "a topic cannot be a table of Spark's catalog, which does not hand on its options; CREATE TEMPORARY VIEW … "
            "USING strandline OPTIONS (…) makes a view of it, and df.write.format('strandline') writes to it"
        )


class UnsupportedTrigger(SourceError):
    """A stream with trigger(continuous=…) ends in a topic: Spark asks the sink to confirm rows that it never got. Spark
    goes on all the same, and has this in its log."""

    condition = "UNSUPPORTED_TRIGGER"

    def __init__(self) -> None:
        super().__init__(
            "with trigger(continuous=…) Spark hands no rows to a sink in Python, so nothing is written; stop the query "
            "and use trigger(processingTime=…) or trigger(availableNow=True)"
        )


class WriteFailed(SourceError):
    """Records were not acknowledged."""

    condition = "STRANDLINE_WRITE_FAILED"


class SupersededWrite(SourceError):
    """A later version of the same write has begun: this one is a left-over, or its checkpoint is an old copy."""

    condition = "STRANDLINE_WRITE_SUPERSEDED"


class RowsChanged(SourceError):
    """A task that is repeated has other rows than those that it wrote before."""

    condition = "STRANDLINE_ROWS_CHANGED"


class WrittenRowsGone(SourceError):
    """A task that is repeated cannot tell what it wrote before."""

    condition = "STRANDLINE_WRITTEN_ROWS_GONE"


class UnsupportedSpark(SourceError):
    """The installed Spark cannot do this."""

    condition = "UNSUPPORTED_SPARK_VERSION"


class CorruptRecords(SourceError):
    """Records fail their checksum or cannot be decoded, though the brokers hand them out."""

    condition = "CORRUPT_RECORDS"

    def __init__(self, text: str) -> None:
        super().__init__(
            f"{text}. Another replica may be whole: 'strandline audit' says which are; or read around the batch "
            "with startingOffsets and endingOffsets"
        )


class OffsetGone(SourceError):
    """The position to read from lies outside what the partition holds; becomes DataLoss or a warning."""


class ReadTimeout(SourceError):
    """The brokers did not hand out the range in time."""

    condition = "KAFKA_READ_TIMEOUT"


class ReadFailed(SourceError):
    """No broker could be reached, or none answered, when a read was planned or carried out."""

    condition = "STRANDLINE_READ_FAILED"


# --- Pipelines -------------------------------------------------------------------------------------------------


class ArchiveBusy(SourceError):
    """Another archive run works in the folder, or committed the same run first."""

    condition = "ARCHIVE_BUSY"


class ArchiveMismatch(SourceError):
    """The topic is not the one that the folder holds, or lost records that the archive needs."""

    condition = "ARCHIVE_DOES_NOT_MATCH_TOPIC"


class ArchiveDamaged(SourceError):
    """A manifest or a file of an archive is missing or is not what was committed."""

    condition = "ARCHIVE_DAMAGED"


class RestoreRefused(SourceError):
    """The topic holds something that a restore would double or mix with the archive."""

    condition = "RESTORE_REFUSED"


class RestoreFailed(SourceError):
    """Records could not be written. What was written before them stays, and a restore that is resumed goes on there."""

    condition = "RESTORE_FAILED"


class NoChangeLogs(SourceError):
    """Nothing that was named holds a line of a broker's change logs."""

    condition = "NO_CHANGE_LOGS"


class SourceWarning(UserWarning):
    """An option has no effect, or data is missing that the user said may be missing."""


def warn(text: str) -> None:
    """Tell the user through the worker's stderr, which Spark shows on the console."""
    warnings.warn(text, SourceWarning, stacklevel=2)
