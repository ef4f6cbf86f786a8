"""What callers are told of a batch that is given up: class, text, and whether its records may be in the log."""

from __future__ import annotations

from strandline.client.accumulator import Batch, PartitionQueue
from strandline.client.errors import DeliveryFailed, DeliveryTimeout, ProducerFenced, SequenceTaken
from strandline.client.numbering import NUMBERS_REFUSED
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import PartitionProduceResponse

APPENDED_NOTHING = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.INVALID_RECORD,
        *NUMBERS_REFUSED,
    }
)
"""Answers to Produce after which the log is as it was."""


def failed(batch: Batch, error: Exception | str, *, is_given: bool = False) -> DeliveryFailed:
    """It will not be sent again after this. `is_given`: so are its numbers."""
    kind = _kind(error) if is_given else DeliveryFailed
    return kind(
        f"{_records(batch)}: {error}{_remedy(batch, error)}; {_outcome(batch)}",
        outcome_unknown=batch.maybe_appended,
        cause=error if isinstance(error, Exception) else None,
    )


def too_late(batch: Batch, reason: str, cause: Exception | str) -> DeliveryTimeout:
    """It was not acknowledged in time, because of `cause`."""
    return DeliveryTimeout(
        f"{_records(batch)}: {reason}; last cause: {cause}; {_outcome(batch)}",
        outcome_unknown=batch.maybe_appended,
        cause=cause if isinstance(cause, Exception) else None,
    )


def given_up_with(first: DeliveryFailed, batch: Batch) -> DeliveryFailed:
    """With given numbers nothing follows what failed."""
    kind = type(first) if isinstance(first, SequenceTaken | ProducerFenced) else DeliveryFailed
    return kind(
        f"{_records(batch)}: given up with what failed before: {first}; {_outcome(batch)}",
        outcome_unknown=batch.maybe_appended,
        cause=first,
    )


def taken(queue: PartitionQueue, batch: Batch, part: PartitionProduceResponse) -> str | None:
    """Where a batch with given numbers is not acknowledged, though the log has its numbers; None where it may be. One
    that landed behind another that did not follows somebody else's: those before it would seem to be there, too."""
    if queue.numbering is None or not queue.numbering.is_given:
        return None
    if is_known(part):
        return f"the log has this batch's numbers, at offset {part.base_offset} (-1: it does not say)"
    if part.error_code == ErrorCode.NONE and (queue.numbering.failure is not None or not queue.is_first(batch)):
        return f"it landed at offset {part.base_offset}, behind numbers of which this producer has no acknowledgement"
    return None


def is_known(part: PartitionProduceResponse) -> bool:
    """The log had the batch's numbers before this attempt."""
    return part.is_repetition or part.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def _kind(error: object) -> type[DeliveryFailed]:
    code = getattr(error, "code", None)
    if code == ErrorCode.INVALID_PRODUCER_EPOCH:
        return ProducerFenced
    is_taken = code in NUMBERS_REFUSED or code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    return SequenceTaken if is_taken else DeliveryFailed


def _records(batch: Batch) -> str:
    return f"{batch.records_count} record{'s' if batch.records_count != 1 else ''} for {batch.topic_partition}"


def _remedy(batch: Batch, error: Exception | str) -> str:
    """Where the broker's words have none."""
    if getattr(error, "code", None) != ErrorCode.MESSAGE_TOO_LARGE or "max.message.bytes" in str(error):
        return ""
    return (
        f" (a batch of {len(batch.data)} bytes: raise max.message.bytes of the topic, or lower max.request.size of the "
        "producer)"
    )


def _outcome(batch: Batch) -> str:
    return "they may be in the log all the same" if batch.maybe_appended else "they are not in the log"
