"""Which replicas of a topic a replication throttle concerns (KIP-73): `*`, or `partition:broker,partition:broker`.

The first number names a partition, the second one a broker: of the leaders' key the broker that leads it, of the
followers' key the one that follows. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from strandline.runtime.config.keys import Allowed

ALL = "*"
_REPLICA = re.compile(r"[0-9]{1,10}:[0-9]{1,10}")


class ThrottledReplicas(NamedTuple):
    """replicas: (partition, broker id); of no meaning where it is all of them."""

    is_all: bool
    replicas: frozenset[tuple[int, int]]

    def has(self, partition: int, broker_id: int) -> bool:
        return self.is_all or (partition, broker_id) in self.replicas


def throttled_replicas(entries: Sequence[str]) -> ThrottledReplicas | None:
    """entries: as the key's list has them, and allowed. None where no replica is throttled."""
    if not entries:
        return None
    if ALL in entries:
        return ThrottledReplicas(True, frozenset())
    pairs = (entry.split(":") for entry in entries)
    return ThrottledReplicas(False, frozenset((int(partition), int(broker_id)) for partition, broker_id in pairs))


def _is_allowed(entries: Sequence[str]) -> bool:
    return tuple(entries) == (ALL,) or all(map(_REPLICA.fullmatch, entries))


THROTTLED_REPLICAS = Allowed("*, or a list of partition:broker", _is_allowed)
"""As Kafka's ThrottledReplicaListValidator."""
