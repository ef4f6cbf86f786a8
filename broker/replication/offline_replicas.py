"""How many replicas of this broker are offline: what Kafka's OfflineReplicaCount and `/status` tell.

| which | why |
|---|---|
| hosted, and failed since | a disk error, or a bug |
| refused at the start | only an operator can mend the log |
| ordered, and not hosted | it may lie in a log directory that could not be read at the start |

Of the last nobody keeps a list: they are what the metadata assign to this broker and it does not host, as long as there
is such a directory. So for a moment after a start those count, too, whose role was not ordered yet.
"""

from __future__ import annotations

from collections.abc import Mapping

from strandline.broker.metadata_cache import MetadataCache
from strandline.broker.replication.partition import Partition
from strandline.storage.manager.log_manager import LogManager


def offline_replicas(
    broker_id: int, metadata: MetadataCache, partitions: Mapping[tuple[str, int], Partition], logs: LogManager
) -> int:
    """See the module. partitions: those that are hosted."""
    failed = sum(partition.failed for partition in partitions.values())
    return failed + not_hosted(broker_id, metadata, partitions, logs)


def not_hosted(
    broker_id: int, metadata: MetadataCache, partitions: Mapping[tuple[str, int], Partition], logs: LogManager
) -> int:
    """Those of them that have no partition here."""
    refused = logs.refused
    count = sum(tp not in partitions for tp in refused)
    if logs.directories.has_unread:
        count += sum(
            broker_id in state.replicas and (name, index) not in partitions and (name, index) not in refused
            for name, topic in metadata.topics.items()
            for index, state in topic.partitions.items()
        )
    return count
