"""Producer, consumer, admin.

`TrioProducer`, `TrioConsumer`, `TrioAdmin` for trio programs; `Producer`, `Consumer`, `Admin` for scripts;
`strandline.aio` has those for asyncio. Names are imported on first use: a broker needs `client.connection` only.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from strandline.client.accumulator import EncodedBatch as EncodedBatch
    from strandline.client.admin import RecoveredPartition as RecoveredPartition
    from strandline.client.admin import TrioAdmin as TrioAdmin
    from strandline.client.assignment import FetchedBatches as FetchedBatches
    from strandline.client.columns import FetchedColumns as FetchedColumns
    from strandline.client.consumer import TrioConsumer as TrioConsumer
    from strandline.client.delivery import DeliveredBatch as DeliveredBatch
    from strandline.client.delivery import Delivery as Delivery
    from strandline.client.delivery import FailedBatch as FailedBatch
    from strandline.client.delivery import ManyDelivery as ManyDelivery
    from strandline.client.delivery import RecordMetadata as RecordMetadata
    from strandline.client.groups.administration import GroupListing as GroupListing
    from strandline.client.groups.administration import GroupOffset as GroupOffset
    from strandline.client.groups.administration import GroupView as GroupView
    from strandline.client.groups.group import GroupMetadata as GroupMetadata
    from strandline.client.groups.offsets import OffsetAndMetadata as OffsetAndMetadata
    from strandline.client.identity import ProducerIdentity as ProducerIdentity
    from strandline.client.log_dirs import LogDirs as LogDirs
    from strandline.client.log_dirs import LogDirView as LogDirView
    from strandline.client.log_dirs import LogSize as LogSize
    from strandline.client.lookup import FoundOffset as FoundOffset
    from strandline.client.metadata import BrokerView as BrokerView
    from strandline.client.metadata import ClusterView as ClusterView
    from strandline.client.metadata import PartitionView as PartitionView
    from strandline.client.metadata import TopicView as TopicView
    from strandline.client.options import AdminOptions as AdminOptions
    from strandline.client.options import ConsumerOptions as ConsumerOptions
    from strandline.client.options import ProducerOptions as ProducerOptions
    from strandline.client.producer import TrioProducer as TrioProducer
    from strandline.client.producer_states import KnownProducer as KnownProducer
    from strandline.client.producer_states import KnownProducers as KnownProducers
    from strandline.client.prometheus import ClientCollector as ClientCollector
    from strandline.client.reassignments import OngoingReassignment as OngoingReassignment
    from strandline.client.record import ConsumerRecord as ConsumerRecord
    from strandline.client.replicas.reading import Replica as Replica
    from strandline.client.replicas.reading import ReplicaOffsets as ReplicaOffsets
    from strandline.client.replicas.reading import ReplicaPart as ReplicaPart
    from strandline.client.send_futures import SendFuture as SendFuture
    from strandline.client.send_futures import SendManyFuture as SendManyFuture
    from strandline.client.sync import Admin as Admin
    from strandline.client.sync import Consumer as Consumer
    from strandline.client.sync_producer import Producer as Producer
    from strandline.client.topic_changes import CreatedTopic as CreatedTopic
    from strandline.client.topic_changes import NewTopic as NewTopic

_HOMES = {
    "Admin": "sync",
    "AdminOptions": "options",
    "BrokerView": "metadata",
    "ClientCollector": "prometheus",
    "ClusterView": "metadata",
    "Consumer": "sync",
    "ConsumerOptions": "options",
    "ConsumerRecord": "record",
    "CreatedTopic": "topic_changes",
    "DeliveredBatch": "delivery",
    "Delivery": "delivery",
    "EncodedBatch": "accumulator",
    "FailedBatch": "delivery",
    "FetchedBatches": "assignment",
    "FetchedColumns": "columns",
    "FoundOffset": "lookup",
    "GroupListing": "groups.administration",
    "GroupMetadata": "groups.group",
    "GroupOffset": "groups.administration",
    "GroupView": "groups.administration",
    "KnownProducer": "producer_states",
    "KnownProducers": "producer_states",
    "LogDirView": "log_dirs",
    "LogDirs": "log_dirs",
    "LogSize": "log_dirs",
    "ManyDelivery": "delivery",
    "NewTopic": "topic_changes",
    "OffsetAndMetadata": "groups.offsets",
    "OngoingReassignment": "reassignments",
    "PartitionView": "metadata",
    "Producer": "sync_producer",
    "ProducerIdentity": "identity",
    "ProducerOptions": "options",
    "RecordMetadata": "delivery",
    "RecoveredPartition": "admin",
    "Replica": "replicas.reading",
    "ReplicaOffsets": "replicas.reading",
    "ReplicaPart": "replicas.reading",
    "SendFuture": "send_futures",
    "SendManyFuture": "send_futures",
    "TopicView": "metadata",
    "TrioAdmin": "admin",
    "TrioConsumer": "consumer",
    "TrioProducer": "producer",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
