"""Producer, consumer, admin.

`TrioProducer`, `TrioConsumer`, `TrioAdmin` for trio programs, `AsyncProducer`, `AsyncConsumer`, `AsyncAdmin` for those
of asyncio; `Producer`, `Consumer`, `Admin` for scripts. Names are imported on first use: a broker needs
`client.connection` only.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "Admin": "sync",
    "AsyncAdmin": "aio",
    "AsyncConsumer": "aio",
    "AsyncProducer": "aio",
    "ConsumerRecord": "assignment",
    "Consumer": "sync",
    "CreatedTopic": "admin",
    "DeliveredBatch": "delivery",
    "FailedBatch": "delivery",
    "FetchedBatches": "assignment",
    "FoundOffset": "lookup",
    "GroupListing": "groups.administration",
    "GroupOffset": "groups.administration",
    "GroupView": "groups.administration",
    "GroupMetadata": "groups.group",
    "KnownProducer": "producer_states",
    "LogDirView": "log_dirs",
    "LogSize": "log_dirs",
    "NewTopic": "admin",
    "OffsetAndMetadata": "groups.offsets",
    "OngoingReassignment": "reassignments",
    "Producer": "sync_producer",
    "ProducerIdentity": "identity",
    "RecordMetadata": "delivery",
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
