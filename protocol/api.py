"""Which requests exist: API keys (Kafka's numbers) and the versions that this build speaks.

Source of the numbers: Kafka's protocol guide ("Api Keys"). LeaderAndIsr, StopReplica, UpdateMetadata and
ControlledShutdown are spoken between brokers only and exist in the native dialect only.
"""

from __future__ import annotations

import enum


class ApiKey(enum.IntEnum):
    """The first integer of every request header: which message follows."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    OFFSET_FOR_LEADER_EPOCH = 23
    ELECT_LEADERS = 43


INTER_BROKER_ONLY = frozenset(
    {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.CONTROLLED_SHUTDOWN}
)
"""Served on the inter-broker listener only (safety.md §5)."""
