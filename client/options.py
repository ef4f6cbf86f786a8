"""The settings of each client as keyword arguments, for who reads types: names, and what each may be.

Nothing more is said of them here: defaults, units, limits and meaning stand in `settings`, and `help` of a client shows
them (`settings_help`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict

from strandline.client.identity import ProducerIdentity
from strandline.client.settings import Deserializer, Partitioner, Serializer

Acks = Literal[-1, 0, 1, "-1", "0", "1", "all"]
BufferFullPolicy = Literal["block", "drop", "raise"]
Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
ResetPolicy = Literal["earliest", "latest", "none"]


class ClientOptions(TypedDict, total=False):
    """What every client takes; see `ClientSettings`."""

    client_id: str
    request_timeout_ms: float
    socket_connection_setup_timeout_ms: float
    bootstrap_timeout_ms: float
    metadata_max_age_ms: float
    retry_backoff_ms: float
    retry_backoff_max_ms: float
    default_api_timeout_ms: float
    max_frame_bytes: int


class ProducerOptions(ClientOptions, total=False):
    """What producers take; see `ProducerSettings`."""

    acks: Acks
    retries: int
    delivery_timeout_ms: float
    batch_size: int
    linger_ms: float | None
    buffer_memory: int
    max_block_ms: float
    buffer_full: BufferFullPolicy
    compression_type: Codec
    max_request_size: int
    max_in_flight_requests_per_connection: int
    enable_idempotence: bool | None
    allow_auto_create_topics: bool
    identity: ProducerIdentity | None
    key_serializer: Serializer | None
    value_serializer: Serializer | None
    partitioner: Partitioner | None


class ConsumerOptions(ClientOptions, total=False):
    """What consumers take; see `ConsumerSettings`."""

    auto_offset_reset: ResetPolicy
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    max_poll_records: int
    consumer_timeout_ms: float
    key_deserializer: Deserializer | None
    value_deserializer: Deserializer | None
    check_crcs: bool
    client_rack: str
    group_id: str
    group_instance_id: str
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    enable_auto_commit: bool
    auto_commit_interval_ms: float
    partition_assignment_strategy: str | Sequence[str]


class AdminOptions(ClientOptions, total=False):
    """What admin clients take; see `AdminSettings`."""
