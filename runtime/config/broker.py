"""The broker's configuration as one immutable value: an attribute per row of the table, dots turned to underscores.

Values are typed and final: where one key stands in for another (`log.retention.hours` for `log.retention.ms`, `log.dir`
for `log.dirs` …), the attribute of the more precise key holds what counts. A test keeps this class and the table equal.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from strandline.runtime.config.listeners import Listener
from strandline.runtime.network import Address


class BrokerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Made by `config.load_broker_config`; change one for a test with `msgspec.structs.replace`."""

    warnings: tuple[str, ...] = ()
    """What the operator should know: unknown keys, keys that this build does not act on, doubtful combinations."""
    explicit: tuple[str, ...] = ()
    """Keys that were set, in the order of the file; the others have their defaults."""

    undecided: frozenset[str] = frozenset()
    """Attributes that ZooKeeper overrides with what cannot be read: whoever deletes by them keeps everything."""

    broker_id: int
    broker_id_generation_enable: bool
    reserved_broker_max_id: int
    broker_rack: str | None
    log_folder: Path | None
    admin_listener: Address | None
    listeners: tuple[Listener, ...]
    advertised_listeners: tuple[Listener, ...]
    listener_security_protocol_map: dict[str, str]
    inter_broker_listener_name: str
    security_inter_broker_protocol: str
    control_plane_listener_name: str | None
    authorizer_class_name: str
    num_network_threads: int
    num_io_threads: int
    background_threads: int
    queued_max_requests: int
    queued_max_request_bytes: int
    socket_send_buffer_bytes: int
    socket_receive_buffer_bytes: int
    socket_request_max_bytes: int
    socket_listen_backlog_size: int
    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: tuple[str, ...]
    max_connection_creation_rate: int
    inter_broker_connections_reserved: int
    connections_max_idle_ms: int
    frame_timeout_ms: int
    socket_send_timeout_ms: int
    max_in_flight_requests_per_connection: int
    request_timeout_ms: int
    connection_failed_authentication_delay_ms: int
    zookeeper_connect: str
    zookeeper_session_timeout_ms: int
    zookeeper_connection_timeout_ms: int
    zookeeper_max_in_flight_requests: int
    zookeeper_set_acl: bool
    auto_create_topics_enable: bool
    delete_topic_enable: bool
    num_partitions: int
    default_replication_factor: int
    unclean_leader_election_enable: bool
    unclean_recovery_strategy: str
    auto_leader_rebalance_enable: bool
    leader_imbalance_per_broker_percentage: int
    leader_imbalance_check_interval_seconds: int
    controlled_shutdown_enable: bool
    controlled_shutdown_max_retries: int
    controlled_shutdown_retry_backoff_ms: int
    controller_socket_timeout_ms: int
    num_replica_fetchers: int
    min_insync_replicas: int
    replica_lag_time_max_ms: int
    replica_socket_timeout_ms: int
    replica_socket_receive_buffer_bytes: int
    replica_fetch_max_bytes: int
    replica_fetch_wait_max_ms: int
    replica_fetch_min_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_backoff_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    replica_selector_class: str | None
    fetch_max_bytes: int
    max_incremental_fetch_session_cache_slots: int
    fetch_purgatory_purge_interval_requests: int
    producer_purgatory_purge_interval_requests: int
    delete_records_purgatory_purge_interval_requests: int
    leader_replication_throttled_rate: int
    follower_replication_throttled_rate: int
    log_dirs: tuple[str, ...]
    log_dir: str
    num_recovery_threads_per_data_dir: int
    message_max_bytes: int
    max_decompressed_message_bytes: int
    compression_type: str
    log_segment_bytes: int
    log_roll_ms: int
    log_roll_hours: int
    log_roll_jitter_ms: int
    log_roll_jitter_hours: int
    log_retention_ms: int
    log_retention_minutes: int | None
    log_retention_hours: int
    log_retention_bytes: int
    log_retention_check_interval_ms: int
    log_cleanup_policy: tuple[str, ...]
    log_cleaner_enable: bool
    log_cleaner_threads: int
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_io_buffer_load_factor: float
    log_cleaner_io_buffer_size: int
    log_cleaner_io_max_bytes_per_second: float
    log_cleaner_backoff_ms: int
    log_cleaner_min_cleanable_ratio: float
    log_cleaner_delete_retention_ms: int
    log_cleaner_min_compaction_lag_ms: int
    log_cleaner_max_compaction_lag_ms: int
    log_index_size_max_bytes: int
    log_index_interval_bytes: int
    log_flush_interval_messages: int
    log_flush_interval_ms: int
    log_flush_scheduler_interval_ms: int
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_start_offset_checkpoint_interval_ms: int
    log_segment_delete_delay_ms: int
    log_preallocate: bool
    log_message_timestamp_type: str
    log_message_timestamp_difference_max_ms: int
    log_message_timestamp_before_max_ms: int
    log_message_timestamp_after_max_ms: int
    log_message_downconversion_enable: bool
    log_message_format_version: str | None
    inter_broker_protocol_version: str | None
    group_min_session_timeout_ms: int
    group_max_session_timeout_ms: int
    group_initial_rebalance_delay_ms: int
    group_max_size: int
    group_consumer_session_timeout_ms: int
    group_consumer_heartbeat_interval_ms: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int
    offsets_topic_compression_codec: int
    offsets_retention_minutes: int
    offsets_retention_check_interval_ms: int
    offsets_load_buffer_size: int
    offsets_commit_timeout_ms: int
    offsets_commit_required_acks: int
    offset_metadata_max_bytes: int
    transaction_state_log_num_partitions: int
    transaction_state_log_replication_factor: int
    transaction_state_log_min_isr: int
    transaction_state_log_segment_bytes: int
    transaction_state_log_load_buffer_size: int
    transaction_max_timeout_ms: int
    transactional_id_expiration_ms: int
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    producer_id_expiration_ms: int
    transaction_partition_verification_enable: bool
    quota_producer_default: int
    quota_consumer_default: int
    quota_window_num: int
    quota_window_size_seconds: int
    replication_quota_window_num: int
    replication_quota_window_size_seconds: int
    metrics_num_samples: int
    metrics_sample_window_ms: int
    metric_reporters: tuple[str, ...]
