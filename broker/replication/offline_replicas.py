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

from collections.abc import Iterator, Mapping
from itertools import islice

from strandline.broker.metadata_cache import MetadataCache
from strandline.broker.replication.partition import Partition
from strandline.storage.manager.log_manager import LogManager

REPLICAS_PER_STEP = 1000


def not_hosted(
    broker_id: int, metadata: MetadataCache, partitions: Mapping[tuple[str, int], Partition], logs: LogManager
) -> Iterator[int]:
    """How many of the last two rows there are: step by step, to be added up, since as many may have to be looked at as
    the cluster has. Who advances it may let others run between two."""
    missing = _whether_missing(broker_id, metadata, partitions, logs)
    while step := list(islice(missing, REPLICAS_PER_STEP)):
        yield sum(step)


def _whether_missing(
    broker_id: int, metadata: MetadataCache, partitions: Mapping[tuple[str, int], Partition], logs: LogManager
) -> Iterator[bool]:
    refused = logs.refused
    for tp in list(refused):
        yield tp not in partitions
    if logs.directories.has_unread:
        for name, topic in list(metadata.topics.items()):
            for index, state in list(topic.partitions.items()):
                yield broker_id in state.replicas and (name, index) not in partitions and (name, index) not in refused
