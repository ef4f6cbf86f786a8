"""What can go wrong for a client: a class per failure, each with one line that names broker, cause and remedy.

Two attributes drive every retry decision, and nothing else does: `retriable` (the same call may succeed later) and
`invalid_metadata` (what this client knows of the cluster is out of date: ask again first). An error code that a broker
answered becomes `AnsweredError` or its subclass by `error_for`; the numbers live in `protocol.errors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from strandline.protocol.errors import ErrorCode, RemoteProtocolError, error_code
from strandline.protocol.types import TopicPartition

if TYPE_CHECKING:
    from strandline.client.record import ConsumerRecord


class ClientError(Exception):
    """Base of every error of this package."""

    retriable = False
    invalid_metadata = False
    why = ""
    """The cause alone, where the text names broker and remedy beside it."""
    is_silence = False
    """A broker that had told its versions did not answer in time. One that does not even tell them hangs, or is none:
    no quota holds that answer."""

    def because(self, why: str) -> Self:
        """This error, with its cause alone."""
        self.why = why
        return self


# --- Connections -----------------------------------------------------------------------------------------------


class CannotReachBroker(ClientError):
    """No connection to one broker; nothing was sent."""

    retriable = True
    invalid_metadata = True


class BrokerRefuses(CannotReachBroker):
    """The broker's machine answers, and says that no process listens at that address."""


class WrongBroker(CannotReachBroker):
    """Another broker (or another cluster) answers at an advertised address than the metadata says."""


class ConnectionLost(ClientError):
    """The connection ended while a request was on its way: whether it was carried out is unknown."""

    retriable = True
    invalid_metadata = True


class RequestTimedOut(ClientError):
    """A broker did not answer in time: whether the request was carried out is unknown."""

    retriable = True
    invalid_metadata = True
    is_silence = True


class NotSettledYet(RequestTimedOut, TimeoutError):
    """The time given to `result` or `exception` of a future is over, and the records are still on their way."""


def no_answer(broker_id: int) -> RequestTimedOut:
    """It does not answer for longer than it should, and may yet."""
    return RequestTimedOut(f"broker {broker_id} does not answer")


class BrokerMisbehaved(ClientError, RemoteProtocolError):
    """A broker (or what listens in its place) broke the protocol: whether the request was carried out is unknown."""

    retriable = True
    invalid_metadata = True


class UnsupportedApiVersion(ClientError):
    """This broker does not serve a version of the request that this client speaks; nothing was sent."""


class NoBrokerReachable(ClientError):
    """None of the bootstrap servers and known brokers answered; the text has each address that was tried, and why that
    failed. A client that has not reached its cluster yet raises it after `bootstrap_timeout_ms`."""

    retriable = True
    invalid_metadata = True


class ClientClosed(ClientError):
    """The client was closed before or during the call, or a failure of its own ended it, which is its `__cause__`."""


class NotRunning(ClientError):
    """Nobody has started the tasks that would do it: the client is used outside its `async with` block, and its `run`
    was not started in a nursery."""


class InvalidClientConfig(ClientError):
    """A client setting is unknown or has a value that cannot be used."""


# --- Answers ---------------------------------------------------------------------------------------------------


class AnsweredError(ClientError):
    """A broker answered with an error code; subclasses exist for those that programs handle one by one."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.retriable = code.retriable
        self.invalid_metadata = code.invalid_metadata


class UnknownTopic(AnsweredError):
    """The topic or partition does not exist as far as the asked broker knows."""


class LeaderNotAvailable(AnsweredError):
    """The partition has no leader now."""


class TopicAlreadyExists(AnsweredError):
    """A topic of that name is there already."""


class InvalidTopic(AnsweredError, ValueError):
    """The topic's name is not legal."""


class InvalidTopicSettings(AnsweredError):
    """Partition count, replication factor, assignment or configuration of a new topic was refused."""


class MessageTooLarge(AnsweredError):
    """The broker refuses a batch above the topic's `max.message.bytes`."""


class NotEnoughReplicas(AnsweredError):
    """Fewer replicas in sync than `min.insync.replicas`; `acks=all` is refused."""


class UnknownGroup(AnsweredError):
    """There is no group of that name."""


class GroupNotEmpty(AnsweredError):
    """The group has members, or one that subscribes to the topic: only without them can that be done."""


class FencedInstance(AnsweredError):
    """Another consumer has joined the group with the same `group_instance_id`, and taken this one's place."""


_CLASSES: dict[ErrorCode, type[AnsweredError]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopic,
    ErrorCode.LEADER_NOT_AVAILABLE: LeaderNotAvailable,
    ErrorCode.TOPIC_ALREADY_EXISTS: TopicAlreadyExists,
    ErrorCode.INVALID_TOPIC_EXCEPTION: InvalidTopic,
    ErrorCode.INVALID_PARTITIONS: InvalidTopicSettings,
    ErrorCode.INVALID_REPLICATION_FACTOR: InvalidTopicSettings,
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: InvalidTopicSettings,
    ErrorCode.INVALID_CONFIG: InvalidTopicSettings,
    ErrorCode.MESSAGE_TOO_LARGE: MessageTooLarge,
    ErrorCode.NOT_ENOUGH_REPLICAS: NotEnoughReplicas,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: NotEnoughReplicas,
    ErrorCode.GROUP_ID_NOT_FOUND: UnknownGroup,
    ErrorCode.NON_EMPTY_GROUP: GroupNotEmpty,
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: GroupNotEmpty,
    ErrorCode.FENCED_INSTANCE_ID: FencedInstance,
}


def error_for(number: int, what: str, who: str = "", detail: str | None = None) -> AnsweredError:
    """The exception for an answered code. `what` names the thing (a topic, a partition), `who` the broker that
    answered, `detail` its own words if it gave any."""
    code = error_code(number)
    name = code.name if code.value == number else f"error {number}"
    source = f" from {who}" if who else ""
    return _CLASSES.get(code, AnsweredError)(code, f"{what}: {name}{source}: {detail or code.explanation}")


# --- Producing -------------------------------------------------------------------------------------------------


class DeliveryFailed(ClientError):
    """A record was not delivered. `outcome_unknown`: it may stand in the log all the same, since an attempt was sent
    whose answer never came or came after the append. `cause` is the last error."""

    def __init__(self, text: str, *, outcome_unknown: bool, cause: Exception | None = None) -> None:
        super().__init__(text)
        self.outcome_unknown = outcome_unknown
        self.cause = cause


class DeliveryTimeout(DeliveryFailed):
    """`delivery_timeout_ms` passed before the record was acknowledged."""


class SendsFailed(DeliveryFailed):
    """Some of the records sent before were not delivered, and the program has not asked what became of them: raised by
    `flush`, by `close` and at the end of the block. `failed_records` counts them, `cause` is the first one's error.
    Each is told of once."""

    def __init__(self, text: str, *, failed_records: int, outcome_unknown: bool, cause: Exception) -> None:
        super().__init__(text, outcome_unknown=outcome_unknown, cause=cause)
        self.failed_records = failed_records


class SequenceTaken(DeliveryFailed):
    """With a given identity: the leader knows the batch's numbers as taken, or they do not follow the last ones that it
    knows. Somebody else with this identity wrote there, or this producer itself, whose answer was lost: then
    `outcome_unknown`. What stands there only the log tells. The partition's later records fail with it."""


class ProducerFenced(DeliveryFailed):
    """With a given identity: a later epoch of it writes. Everything that this producer has left fails with it."""


class BufferFull(ClientError):
    """`buffer_memory` is used up by records that wait for delivery; this record was not accepted."""


class RecordDropped(BufferFull):
    """As `BufferFull`, with `buffer_full="drop"`: the record was discarded, as asked for."""


class InvalidRecordValue(ClientError, TypeError):
    """What was given to `send` is not what a record is made of: a key, value or header that is not bytes (or None), a
    timestamp that is not an integer of milliseconds, a topic that is not a string."""


class FlushTimedOut(ClientError):
    """Records given to the producer were still under way when the time given to `flush` or `close` was over."""


class RecordTooLarge(ClientError):
    """A record above `max_request_size` bytes, in a batch of its own; it was not accepted."""


# --- Consuming -------------------------------------------------------------------------------------------------


class NotAssigned(ClientError):
    """The partition is not among those that are assigned to this consumer."""


class NoGroup(ClientError):
    """The consumer has no `group_id`, or has not subscribed to anything."""


class SubscriptionConflict(ClientError):
    """`assign` and `subscribe` exclude each other: a consumer's partitions are its own choice or its group's."""


class CommitFailed(ClientError):
    """The group has given the partitions to others, so these offsets are not committed, and never can be by this
    member. Their records come again, to whoever has the partitions now. `code`: what the coordinator said, if it was
    asked."""

    def __init__(self, text: str, code: ErrorCode | None = None) -> None:
        super().__init__(text)
        self.code = code


class OffsetOutOfRange(ClientError):
    """The position lies outside the log and `auto_offset_reset` is "none"."""

    def __init__(self, text: str, offset: int) -> None:
        super().__init__(text)
        self.offset = offset


class LogTruncated(ClientError):
    """Records below the position are gone: after an unclean election the log ends before it, or diverges below it.
    `diverging_offset` is the first offset that differs from what was consumed."""

    def __init__(self, text: str, diverging_offset: int) -> None:
        super().__init__(text)
        self.diverging_offset = diverging_offset


class DeserializationFailed(ClientError):
    """`key_deserializer` or `value_deserializer` failed at a record, with what is the `__cause__`; the position stays
    before it, so it comes again, unless the program seeks to `offset` + 1. `record` is as it came, in bytes."""

    def __init__(self, text: str, topic_partition: TopicPartition, offset: int, record: ConsumerRecord) -> None:
        super().__init__(text)
        self.topic_partition = topic_partition
        self.offset = offset
        self.record = record


class CorruptRecords(ClientError):
    """Fetched records fail their checksum or cannot be decoded; the position stays before them, and the next poll has
    fetched them anew."""
