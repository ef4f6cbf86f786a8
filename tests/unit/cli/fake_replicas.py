"""The part of the fake cluster about single replicas: where the log of each ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strandline.client.replicas.reading import Replica, ReplicaOffsets


class FakeReplicaAdmin:
    """A replica ends where its partition does, unless `replica_ends` of the cluster says otherwise."""

    cluster: Any

    def replica_offsets(self, epochs: Mapping[Replica, int], timestamp: int, *, timeout_ms: float) -> ReplicaOffsets:
        return {
            replica: self.cluster.replica_ends.get(replica, self.cluster.end(replica.partition)) for replica in epochs
        }
