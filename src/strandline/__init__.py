"""Strandline, a replicated commit log: the public names.

`Producer`, `Consumer` and `Admin` are for scripts and threads, `TrioProducer`, `TrioConsumer` and `TrioAdmin` for trio
programs; those for asyncio are in `strandline.aio`. What their calls take, give and raise is here, too: each error is a
`ClientError`.

Names are imported when first used, so that `import strandline` costs nothing and the broker never loads the client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from strandline.client import (
        Admin,
        AdminOptions,
        BrokerView,
        ClusterView,
        Consumer,
        ConsumerOptions,
        ConsumerRecord,
        CreatedTopic,
        DeliveredBatch,
        Delivery,
        EncodedBatch,
        FailedBatch,
        FetchedBatches,
        FetchedColumns,
        FoundOffset,
        GroupListing,
        GroupMetadata,
        GroupOffset,
        GroupView,
        KnownProducer,
        KnownProducers,
        LogDirView,
        LogDirs,
        LogSize,
        ManyDelivery,
        NewTopic,
        OffsetAndMetadata,
        OngoingReassignment,
        PartitionView,
        Producer,
        ProducerIdentity,
        ProducerOptions,
        RecordMetadata,
        RecoveredPartition,
        Replica,
        ReplicaOffsets,
        ReplicaPart,
        SendFuture,
        SendManyFuture,
        TopicView,
        TrioAdmin,
        TrioConsumer,
        TrioProducer,
    )
    from strandline.client.errors import (
        AnsweredError,
        BrokerMisbehaved,
        BrokerRefuses,
        BufferFull,
        CannotReachBroker,
        ClientClosed,
        ClientError,
        CommitFailed,
        ConnectionLost,
        CorruptRecords,
        DeliveryFailed,
        DeserializationFailed,
        DeliveryTimeout,
        FencedInstance,
        FlushTimedOut,
        GroupNotEmpty,
        InvalidClientConfig,
        InvalidRecordValue,
        InvalidTopic,
        InvalidTopicSettings,
        LeaderNotAvailable,
        LogTruncated,
        MessageTooLarge,
        NoBrokerReachable,
        NoGroup,
        NotAssigned,
        NotEnoughReplicas,
        NotRunning,
        NotSettledYet,
        OffsetOutOfRange,
        ProducerFenced,
        RecordDropped,
        RecordTooLarge,
        RequestTimedOut,
        SendsFailed,
        SequenceTaken,
        SubscriptionConflict,
        TopicAlreadyExists,
        UnknownGroup,
        UnknownTopic,
        UnsupportedApiVersion,
        WrongBroker,
    )
    from strandline.protocol.types import TopicPartition

__version__ = "0.1.0"
__all__ = [
    "Admin",
    "AdminOptions",
    "AnsweredError",
    "BrokerMisbehaved",
    "BrokerRefuses",
    "BrokerView",
    "BufferFull",
    "CannotReachBroker",
    "ClientClosed",
    "ClientError",
    "ClusterView",
    "CommitFailed",
    "ConnectionLost",
    "Consumer",
    "ConsumerOptions",
    "ConsumerRecord",
    "CorruptRecords",
    "CreatedTopic",
    "DeliveredBatch",
    "Delivery",
    "DeliveryFailed",
    "DeliveryTimeout",
    "DeserializationFailed",
    "EncodedBatch",
    "FailedBatch",
    "FencedInstance",
    "FetchedBatches",
    "FetchedColumns",
    "FlushTimedOut",
    "FoundOffset",
    "GroupListing",
    "GroupMetadata",
    "GroupNotEmpty",
    "GroupOffset",
    "GroupView",
    "InvalidClientConfig",
    "InvalidRecordValue",
    "InvalidTopic",
    "InvalidTopicSettings",
    "KnownProducer",
    "KnownProducers",
    "LeaderNotAvailable",
    "LogDirView",
    "LogDirs",
    "LogSize",
    "LogTruncated",
    "ManyDelivery",
    "MessageTooLarge",
    "NewTopic",
    "NoBrokerReachable",
    "NoGroup",
    "NotAssigned",
    "NotEnoughReplicas",
    "NotRunning",
    "NotSettledYet",
    "OffsetAndMetadata",
    "OffsetOutOfRange",
    "OngoingReassignment",
    "PartitionView",
    "Producer",
    "ProducerFenced",
    "ProducerIdentity",
    "ProducerOptions",
    "RecordDropped",
    "RecordMetadata",
    "RecordTooLarge",
    "RecoveredPartition",
    "Replica",
    "ReplicaOffsets",
    "ReplicaPart",
    "RequestTimedOut",
    "SendFuture",
    "SendManyFuture",
    "SendsFailed",
    "SequenceTaken",
    "SubscriptionConflict",
    "TopicAlreadyExists",
    "TopicPartition",
    "TopicView",
    "TrioAdmin",
    "TrioConsumer",
    "TrioProducer",
    "UnknownGroup",
    "UnknownTopic",
    "UnsupportedApiVersion",
    "WrongBroker",
    "__version__",
]

_HOMES = ("strandline.client", "strandline.client.errors", "strandline.protocol.types")
_MISSING = object()


def __getattr__(name: str) -> object:
    """PEP 562: resolve a public name on first use and keep it."""
    if name not in __all__:
        raise AttributeError(f"module 'strandline' has no attribute {name!r}; public names: {', '.join(__all__)}")
    import importlib

    found = (getattr(importlib.import_module(home), name, _MISSING) for home in _HOMES)
    value = next(value for value in found if value is not _MISSING)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
