"""Error codes on the wire and the two families of protocol errors.

`ErrorCode` has Kafka's numbers and names (protocol guide, "Error Codes"). A code says three things to a client: what
happened, in one sentence with its remedy (`explanation`); whether the same request may succeed later (`retriable`); and
whether the client's view of the cluster is stale, so that it must look for the leader first (`invalid_metadata`).

`BrokerError` carries a code through our own code. `LocalProtocolError` is a bug on this side (it was about to send what
the protocol does not allow); `RemoteProtocolError` means that the peer did: framing is lost, close the connection.
"""

from __future__ import annotations

import enum

_RETRY = (True, False)
_REFRESH = (True, True)


class LocalProtocolError(Exception):
    """This side tried to send something that the protocol does not allow: a bug here, never the peer's fault."""


class RemoteProtocolError(Exception):
    """The peer broke the protocol, framing is lost and the connection has to be closed. The text says how."""


class ErrorCode(enum.IntEnum):
    """What a response says about one request, topic or partition: number, explanation, (retriable, invalid_metadata).

    `error_code(number)` reads a number that may be unknown to this build.
    """

    explanation: str
    retriable: bool
    invalid_metadata: bool

    def __new__(cls, number: int, explanation: str = "", advice: tuple[bool, bool] = (False, False)) -> ErrorCode:
        member = int.__new__(cls, number)
        member._value_ = number
        member.explanation = explanation
        member.retriable, member.invalid_metadata = advice
        return member

    UNKNOWN_SERVER_ERROR = -1, "The broker met a bug of its own while serving the request; its log has the details."
    NONE = 0, "Success."
    OFFSET_OUT_OF_RANGE = (
        1,
        "The offset is outside [log start, log end]; seek to an offset that exists or set auto.offset.reset.",
    )
    CORRUPT_MESSAGE = 2, "The records failed their CRC or are not whole batches; send them again.", _RETRY
    UNKNOWN_TOPIC_OR_PARTITION = (
        3,
        "This broker does not host that topic or partition; create the topic or check the name.",
        _REFRESH,
    )
    INVALID_FETCH_SIZE = 4, "The fetch size is not positive; raise the maximum bytes of the fetch."
    LEADER_NOT_AVAILABLE = 5, "The partition has no leader at the moment; an election is under way, retry.", _REFRESH
    NOT_LEADER_OR_FOLLOWER = (
        6,
        "This broker is not the partition's leader (or replica); refresh the metadata and retry.",
        _REFRESH,
    )
    REQUEST_TIMED_OUT = (
        7,
        "The request took longer than its timeout; its outcome is unknown, retry or raise the timeout.",
        _RETRY,
    )
    BROKER_NOT_AVAILABLE = 8, "The broker is not there; check that it runs and is registered."
    REPLICA_NOT_AVAILABLE = (
        9,
        "This broker has no replica of the partition (yet); refresh the metadata and retry.",
        _REFRESH,
    )
    MESSAGE_TOO_LARGE = (
        10,
        "The batch is larger than max.message.bytes of the topic (message.max.bytes of brokers): raise it, or lower "
        "max.request.size of the producer.",
    )
    STALE_CONTROLLER_EPOCH = 11, "The request comes from a controller that has been replaced; it must resign."
    OFFSET_METADATA_TOO_LARGE = 12, "The metadata of the commit is larger than offset.metadata.max.bytes; shorten it."
    NETWORK_EXCEPTION = 13, "The connection broke before the answer came; the outcome is unknown, retry.", _REFRESH
    COORDINATOR_LOAD_IN_PROGRESS = 14, "The coordinator is still loading its state; retry.", _RETRY
    COORDINATOR_NOT_AVAILABLE = 15, "There is no coordinator at the moment; look for it again and retry.", _RETRY
    NOT_COORDINATOR = 16, "This broker is not the coordinator; look for it again and retry.", _RETRY
    INVALID_TOPIC_EXCEPTION = (
        17,
        'The topic is the brokers\' own, or its name is not allowed; use 1 to 249 of [a-zA-Z0-9._-], not "." or "..".',
    )
    RECORD_LIST_TOO_LARGE = 18, "The batch is larger than segment.bytes; send smaller batches."
    NOT_ENOUGH_REPLICAS = (
        19,
        "Fewer replicas are in sync than min.insync.replicas, nothing was written; bring brokers back and retry.",
        _RETRY,
    )
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        "Written, but fewer replicas are in sync than min.insync.replicas; a retry may double it.",
        _RETRY,
    )
    INVALID_REQUIRED_ACKS = 21, "acks must be 0, 1 or -1 (all)."
    ILLEGAL_GENERATION = 22, "The group has moved on to another generation; join it again."
    INCONSISTENT_GROUP_PROTOCOL = 23, "The member shares no assignment protocol with its group; configure a common one."
    INVALID_GROUP_ID = 24, "The group id is empty or too long; choose another."
    UNKNOWN_MEMBER_ID = 25, "The group does not know this member; join it again."
    INVALID_SESSION_TIMEOUT = (
        26,
        "The session timeout is outside group.min.session.timeout.ms and group.max.session.timeout.ms.",
    )
    REBALANCE_IN_PROGRESS = 27, "The group rebalances; join it again."
    INVALID_COMMIT_OFFSET_SIZE = (
        28,
        "The commit is larger than a record may be; commit fewer partitions or shorter metadata.",
    )
    TOPIC_AUTHORIZATION_FAILED = 29, "This principal may not do that to the topic; ask for an ACL."
    GROUP_AUTHORIZATION_FAILED = 30, "This principal may not use the group; ask for an ACL."
    CLUSTER_AUTHORIZATION_FAILED = (
        31,
        "This listener or principal may not do that to the cluster; use the inter-broker listener or an ACL.",
    )
    INVALID_TIMESTAMP = 32, "A record's timestamp is outside the allowed range; send milliseconds since 1970."
    UNSUPPORTED_SASL_MECHANISM = 33, "The broker does not offer this SASL mechanism; choose one that it lists."
    ILLEGAL_SASL_STATE = 34, "The request does not fit the state of the authentication; authenticate first."
    UNSUPPORTED_VERSION = (
        35,
        "The broker does not speak this version of the request; ask ApiVersions and use a common one.",
    )
    TOPIC_ALREADY_EXISTS = (
        36,
        'A topic of this name exists, or one whose name differs only in "." and "_"; choose another name.',
    )
    INVALID_PARTITIONS = (
        37,
        "The number of partitions is not allowed; ask for at least 1 and never for fewer than there are.",
    )
    INVALID_REPLICATION_FACTOR = (
        38,
        "The replication factor is below 1 or above the number of live brokers; start brokers or lower it.",
    )
    INVALID_REPLICA_ASSIGNMENT = (
        39,
        "The assignment has gaps, repeated or unknown brokers, or unequal replica counts; correct it.",
    )
    INVALID_CONFIG = 40, "A configuration value is not allowed; the message names key, value and the allowed values."
    NOT_CONTROLLER = 41, "This broker is not the controller; refresh the metadata and ask the controller.", _REFRESH
    INVALID_REQUEST = 42, "The request contradicts itself or cannot be read; correct the client."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, "The log's message format does not support this request."
    POLICY_VIOLATION = 44, "The request is beyond a limit that the operator set; the message names it."
    OUT_OF_ORDER_SEQUENCE_NUMBER = (
        45,
        "The producer's sequence number does not follow its last one; records were lost before this one.",
    )
    DUPLICATE_SEQUENCE_NUMBER = 46, "The broker has these sequence numbers already; the records stand in the log once."
    INVALID_PRODUCER_EPOCH = 47, "Another producer with this id has taken over; this one must stop."
    INVALID_TXN_STATE = 48, "The transaction is not in a state that allows this (or the broker serves no transactions)."
    INVALID_PRODUCER_ID_MAPPING = (
        49,
        "The producer id does not belong to this transactional id; initialise the producer again.",
    )
    INVALID_TRANSACTION_TIMEOUT = 50, "The transaction timeout is above transaction.max.timeout.ms; lower it."
    CONCURRENT_TRANSACTIONS = 51, "The transactional id has another operation under way; retry.", _RETRY
    TRANSACTION_COORDINATOR_FENCED = 52, "This coordinator has been replaced."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, "This principal may not use the transactional id; ask for an ACL."
    SECURITY_DISABLED = 54, "No authorizer is configured on the broker."
    OPERATION_NOT_ATTEMPTED = 55, "Not tried, because another part of the same request failed; correct that part."
    KAFKA_STORAGE_ERROR = (
        56,
        "The broker's disk failed under this partition; another replica takes over, retry.",
        _REFRESH,
    )
    LOG_DIR_NOT_FOUND = 57, "The broker has no such log folder; see log.dirs."
    SASL_AUTHENTICATION_FAILED = 58, "The credentials were refused; check user and password."
    UNKNOWN_PRODUCER_ID = (
        59,
        "The broker no longer knows this producer (its records have expired); start again at sequence 0.",
    )
    REASSIGNMENT_IN_PROGRESS = 60, "A reassignment of this partition is under way; wait for it or cancel it."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, "Delegation tokens are not enabled on the broker."
    DELEGATION_TOKEN_NOT_FOUND = 62, "There is no such delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, "The delegation token belongs to somebody else."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, "Delegation tokens cannot be asked for over this kind of connection."
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, "This principal may not do that to the delegation token."
    DELEGATION_TOKEN_EXPIRED = 66, "The delegation token has expired; get a new one."
    INVALID_PRINCIPAL_TYPE = 67, "The principal type is not supported; use User."
    NON_EMPTY_GROUP = 68, "The group still has members; stop them first."
    GROUP_ID_NOT_FOUND = 69, "There is no such group."
    FETCH_SESSION_ID_NOT_FOUND = 70, "The broker has dropped the fetch session; start a new one.", _RETRY
    INVALID_FETCH_SESSION_EPOCH = 71, "The fetch session is at another step; start a new one.", _RETRY
    LISTENER_NOT_FOUND = (
        72,
        "The leader has no listener of the name that this client used; give every broker the same listeners.",
        _REFRESH,
    )
    TOPIC_DELETION_DISABLED = 73, "Topics cannot be deleted here; set delete.topic.enable=true."
    FENCED_LEADER_EPOCH = (
        74,
        "The leader epoch of the request is older than the broker's; refresh the metadata and retry.",
        _REFRESH,
    )
    UNKNOWN_LEADER_EPOCH = (
        75,
        "The leader epoch of the request is newer than the broker's; it will learn of it, retry.",
        _RETRY,
    )
    UNSUPPORTED_COMPRESSION_TYPE = 76, "The compression is not supported here; use none, gzip, snappy, lz4 or zstd."
    STALE_BROKER_EPOCH = 77, "The request means an earlier registration of this broker."
    OFFSET_NOT_AVAILABLE = 78, "The new leader does not know its high watermark yet; retry.", _RETRY
    MEMBER_ID_REQUIRED = 79, "Join again with the member id of this answer."
    PREFERRED_LEADER_NOT_AVAILABLE = (
        80,
        "The preferred replica is not in sync; bring its broker back and retry.",
        _REFRESH,
    )
    GROUP_MAX_SIZE_REACHED = 81, "The group has group.max.size members; add no more or raise that limit."
    FENCED_INSTANCE_ID = 82, "Another member uses this group.instance.id; give each its own."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, "No replica may be elected; bring a broker of the in-sync set back.", _REFRESH
    ELECTION_NOT_NEEDED = 84, "The leader is the preferred replica already."
    NO_REASSIGNMENT_IN_PROGRESS = 85, "No reassignment of this partition is under way."
    GROUP_SUBSCRIBED_TO_TOPIC = (
        86,
        "The group is subscribed to the topic, so its offsets cannot be deleted; stop it first.",
    )
    INVALID_RECORD = (
        87,
        "A record or batch breaks a rule of the format or of the topic; the message says which, correct the producer.",
    )
    UNSTABLE_OFFSET_COMMIT = 88, "A transaction with offset commits is open; retry.", _RETRY
    THROTTLING_QUOTA_EXCEEDED = 89, "The quota is used up; wait the throttle time and retry.", _RETRY
    PRODUCER_FENCED = 90, "A newer producer with the same transactional id has taken over; this one must stop."
    RESOURCE_NOT_FOUND = 91, "There is no such resource."
    DUPLICATE_RESOURCE = 92, "The request names one resource twice; name it once."
    UNACCEPTABLE_CREDENTIAL = 93, "The credential does not meet the rules; choose another."
    INCONSISTENT_VOTER_SET = 94, "The sets of voters differ between the nodes."
    INVALID_UPDATE_VERSION = 95, "The version of the update does not follow the current one."
    FEATURE_UPDATE_FAILED = 96, "The feature could not be updated; the message says why."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, "The forwarded principal cannot be read."
    SNAPSHOT_NOT_FOUND = 98, "There is no such snapshot."
    POSITION_OUT_OF_RANGE = 99, "The position is outside the snapshot."
    UNKNOWN_TOPIC_ID = (
        100,
        "This broker does not know the topic id; the topic may have been created anew, refresh the metadata.",
        _REFRESH,
    )
    DUPLICATE_BROKER_REGISTRATION = 101, "Another live broker has this broker.id; give each its own."
    BROKER_ID_NOT_REGISTERED = 102, "No broker with this id is registered."
    INCONSISTENT_TOPIC_ID = (
        103,
        "The topic id is not that of the log on disk; the topic was created anew, refresh the metadata.",
        _REFRESH,
    )
    INCONSISTENT_CLUSTER_ID = 104, "The request belongs to another cluster; check the addresses."
    TRANSACTIONAL_ID_NOT_FOUND = 105, "There is no such transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, "The fetch session changed its use of topic ids; start a new one.", _RETRY
    INELIGIBLE_REPLICA = 107, "The replica may not join the in-sync set now."
    NEW_LEADER_ELECTED = 108, "The change was made, and the sender is no longer the leader."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, "The offset is no longer on the broker's own disk."
    FENCED_MEMBER_EPOCH = 110, "The member's epoch is old; join the group again."
    UNRELEASED_INSTANCE_ID = 111, "Another member still holds this group.instance.id; wait for its session to end."
    UNSUPPORTED_ASSIGNOR = 112, "The broker does not have this assignor; choose one that it has."
    STALE_MEMBER_EPOCH = 113, "The member's epoch is old; fetch the new one and retry."
    MISMATCHED_ENDPOINT_TYPE = 114, "The request came in on the wrong kind of endpoint."
    UNSUPPORTED_ENDPOINT_TYPE = 115, "This kind of endpoint is not supported yet."
    UNKNOWN_CONTROLLER_ID = 116, "There is no such controller."
    UNKNOWN_SUBSCRIPTION_ID = 117, "The subscription is not known; ask for it again."
    TELEMETRY_TOO_LARGE = 118, "The telemetry is larger than the broker takes."
    INVALID_REGISTRATION = 119, "The broker's registration is not allowed."
    TRANSACTION_ABORTABLE = 120, "The transaction failed; abort it and begin again."


def error_code(number: int) -> ErrorCode:
    """The code with this number; UNKNOWN_SERVER_ERROR for a number that this build does not know."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


class BrokerError(Exception):
    """A failure that has a code on the wire: `code` goes to the client, the text names the thing and the remedy."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or code.explanation)
        self.code = code

    def __str__(self) -> str:
        return f"{self.code.name}: {self.args[0]}"
