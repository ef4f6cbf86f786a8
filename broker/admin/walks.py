"""All partitions in steps, for who looks at each and lets others run in between.

Each is told once at most, as it is when its turn comes. One that has gone by then is not told, and one that came
meanwhile may be or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from strandline.broker.metadata_cache import MetadataCache
from strandline.broker.replication.partition import Partition
from strandline.broker.steps import PARTITIONS_PER_STEP, in_pieces
from strandline.protocol.messages import UpdateMetadataPartitionState

Known = tuple[str, int, UpdateMetadataPartitionState]


def hosted_in_steps(partitions: Mapping[tuple[str, int], Partition]) -> Iterator[list[Partition]]:
    """Those that are hosted, a list for each step."""
    for piece in in_pieces(list(partitions)):
        yield [found for key in piece if (found := partitions.get(key)) is not None]


def known_in_steps(metadata: MetadataCache) -> Iterator[list[Known]]:
    """Those of the cluster: topic, number and state, a list for each step."""
    known = _known(metadata)
    while piece := list(islice(known, PARTITIONS_PER_STEP)):
        yield piece


def _known(metadata: MetadataCache) -> Iterator[Known]:
    for name, topic in list(metadata.topics.items()):
        for index in list(topic.partitions):
            if (state := metadata.partition(name, index)) is not None:
                yield name, index, state
