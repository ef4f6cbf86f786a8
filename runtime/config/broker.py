"""The broker's keys, and its configuration as one immutable value: an attribute per key, dots turned to underscores.

Each key is declared here and nowhere else: type, default, what is allowed, what it means, its unit where its name does
not end in it (`keys`). Load-time checks, what ZooKeeper may change, the defaults of topics (`topic`) and the page
`docs/configuration.md` (`reference`, `make docs`) all follow from it.

Names, units and defaults are Kafka's (1.0, with 3.9's for replica.lag.time.max.ms, zookeeper.session.timeout.ms and
offsets.retention.minutes); keys that Kafka does not have say so, and so does one whose default is not Kafka 3.9's.

Values are typed and final: where one key stands in for another (`log.retention.hours` for `log.retention.ms`, `log.dir`
for `log.dirs` …), the attribute of the more precise key holds what counts. A key whose default is None is left out
until then. Of a key that is `read_further` the attribute holds what `reading` makes of the text.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from strandline.runtime.config.address_counts import ADDRESS_COUNTS
from strandline.runtime.config.keys import (
    ANY,
    NOT_EMPTY,
    ConfigKey,
    all_of,
    at_least,
    between,
    boolean,
    double,
    int32,
    int64,
    keys_of,
    one_of,
    read_further,
    some_of,
    string,
    strings,
)
from strandline.runtime.config.listeners import Listener
from strandline.runtime.config.values import INT_MAX, LONG_MAX
from strandline.runtime.network import Address

LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""Kafka's names of what we do, too; classes of others cannot be run here."""


class BrokerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Made by `reading.load_broker_config`; change one for a test with `msgspec.structs.replace`."""

    warnings: tuple[str, ...] = ()
    """What the operator should know: unknown keys, keys that this build does not act on, doubtful combinations."""
    explicit: tuple[str, ...] = ()
    """Keys that were set, in the order of the file; the others have their defaults."""

    undecided: frozenset[str] = frozenset()
    """Attributes that ZooKeeper overrides with what cannot be read: whoever deletes by them keeps everything."""

    of_listeners: dict[str, int] = {}
    """Key of one listener (`listener_keys`) → its value."""

    # A table, one row per key, is easier to read than what the formatter makes of it.
    # fmt: off

    # Identity
    broker_id: int = int32(-1, at_least(-1), "Number of this broker in its cluster; each broker needs its own.")
    broker_id_generation_enable: bool = boolean(True, ANY, "Draw an id where broker.id is -1.", honoured=False)
    reserved_broker_max_id: int = int32(1000, at_least(0), "Largest broker.id while ids may be drawn.", honoured=False)
    broker_rack: str | None = string(None, NOT_EMPTY, "Rack or machine: replicas of a partition go to different ones.")
    log_folder: Path | None = read_further(string(None, NOT_EMPTY,
        "Folder of the broker's own text logs; standard error where left out (Strandline's own key)."))
    admin_listener: Address | None = read_further(string("127.0.0.1:0", ANY,
        "host:port of the admin port (HTTP: /live, /ready, /status, /metrics). Port 0: any free one, printed at start; "
        "empty: no admin port (Strandline's own key)."))

    # Listeners
    listeners: tuple[Listener, ...] = read_further(strings(("PLAINTEXT://127.0.0.1:9092",), NOT_EMPTY,
        "Addresses to bind, NAME://host:port. An empty host is 127.0.0.1, in an environment variable every interface; "
        "0.0.0.0 is every interface. Port 0: any free one. (Kafka: all of them.)"))
    advertised_listeners: tuple[Listener, ...] = read_further(strings(None, NOT_EMPTY,
        "Addresses that clients and brokers are told, one per listener; those of listeners where left out. Clients "
        "alter that of the brokers' own listener only back to the file's.", dynamic=True))
    listener_security_protocol_map: dict[str, str] = read_further(strings(
        ("PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT", "SASL_SSL:SASL_SSL"), NOT_EMPTY,
        "Security protocol of each listener name, NAME:PROTOCOL. This build serves PLAINTEXT only."))
    inter_broker_listener_name: str = string(None, NOT_EMPTY,
        "Listener for brokers and the controller; PLAINTEXT, else the first one, where left out.")
    security_inter_broker_protocol: str = string("PLAINTEXT", one_of("PLAINTEXT"),
        "Security protocol between brokers. This build serves PLAINTEXT only.")
    control_plane_listener_name: str | None = string(None, NOT_EMPTY,
        "A listener of its own for the controller's requests.", honoured=False)
    authorizer_class_name: str = string("", one_of(""),
        "Who may do what. This build has no authorizer and refuses to start with one configured.")

    # Network
    num_network_threads: int = int32(3, between(1, 256),
        "Processors: tasks that share the connections of all listeners, with a receive buffer of 1 MiB each.",
        dynamic=True)
    num_io_threads: int = int32(8, between(1, 10000),
        "Handlers of requests that have to wait (cold reads), and as many of admin requests.", dynamic=True)
    background_threads: int = int32(10, between(1, 256),
        "Threads that wait for disks: so many for what concerns no single one; each log directory and the removal of "
        "files have up to 4 of their own.", dynamic=True)
    queued_max_requests: int = int32(500, at_least(1), "Requests that wait for a handler; then reading stops.")
    queued_max_request_bytes: int = int64(134217728, at_least(-1),
        "Bytes of requests that wait or are being received beyond the shared buffers; of admin requests as many. "
        "Never unlimited: -1 is 256 MiB. "
        "(Kafka: -1.)")
    socket_send_buffer_bytes: int = int32(102400, at_least(-1),
        "SO_SNDBUF; -1 leaves it to the system.", honoured=False)
    socket_receive_buffer_bytes: int = int32(102400, at_least(-1),
        "SO_RCVBUF; -1 leaves it to the system.", honoured=False)
    socket_request_max_bytes: int = int32(104857600, at_least(17), "Longest request; longer ones close.")
    socket_listen_backlog_size: int = int32(50, at_least(1), "Connections that wait to be accepted.")
    max_connections: int = int32(3000, at_least(1), "Open connections, all listeners (Kafka: unlimited).", dynamic=True)
    max_connections_per_ip: int = int32(1000, at_least(0),
        "Open connections of one client address (Kafka: unlimited).", dynamic=True)
    max_connections_per_ip_overrides: tuple[str, ...] = strings((), ADDRESS_COUNTS,
        "Another max.connections.per.ip for some addresses: 10.0.0.7:50. (Kafka: host names, too.)", dynamic=True)
    max_connection_creation_rate: int = int32(INT_MAX, at_least(1),
        "New connections; others wait to be accepted. Not of a listener that only brokers use. (Kafka: also 0, "
        "after which nobody could connect to change it.)", "per second", dynamic=True)
    inter_broker_connections_reserved: int = int32(100, at_least(0),
        "Of max.connections, those kept for the inter-broker listener (Strandline's own key).")
    connections_max_idle_ms: int = int64(600000, at_least(1), "A connection without traffic is closed.")
    frame_timeout_ms: int = int32(30000, at_least(1),
        "A request that has begun to arrive has to be complete by then (Strandline's own key).")
    socket_send_timeout_ms: int = int32(30000, at_least(1),
        "A peer that takes no byte of its responses for so long is closed (Strandline's own key).")
    max_in_flight_requests_per_connection: int = int32(1024, at_least(1),
        "Requests of one connection without a response; then reading stops (Strandline's own key).")
    request_timeout_ms: int = int32(30000, at_least(1), "How long requests that brokers send may take.", honoured=False)
    connection_failed_authentication_delay_ms: int = int32(100, at_least(0), "Delay of a refusal.", honoured=False)

    # ZooKeeper
    zookeeper_connect: str = string(None, NOT_EMPTY, "host:port,…/chroot of the ZooKeeper ensemble. Required.")
    zookeeper_session_timeout_ms: int = int32(18000, at_least(1), "A broker that is silent for so long counts as dead.")
    zookeeper_connection_timeout_ms: int = int32(None, at_least(1),
        "How long the start waits for ZooKeeper; zookeeper.session.timeout.ms where left out.")
    zookeeper_max_in_flight_requests: int = int32(10, at_least(1), "Requests to ZooKeeper at once.", honoured=False)
    zookeeper_set_acl: bool = boolean(False, ANY, "Protect znodes by ACLs.", honoured=False)

    # Topics and controller
    auto_create_topics_enable: bool = boolean(True, ANY, "Create a topic when a client first asks for it.")
    delete_topic_enable: bool = boolean(True, ANY, "Allow topics to be deleted.")
    num_partitions: int = int32(1, at_least(1), "Partitions of a topic whose creator does not say.")
    default_replication_factor: int = int32(3, between(1, 32767),
        "Replicas where the creator does not say. Where left out: 3, or as many as live, with a warning in the "
        "controller's log. What is set is not lowered: with fewer, the creation fails. (Kafka: 1.)")
    unclean_leader_election_enable: bool = boolean(False, ANY,
        "Elect a replica that is not in sync when no other lives: records that were acknowledged may be lost.",
        dynamic=True)
    unclean_recovery_strategy: str = string("balanced", one_of("balanced", "none"),
        "When every in-sync replica may have lost data: wait for all and elect the longest log, or leave the "
        "partition offline (Strandline's own key, after KIP-966).")
    auto_leader_rebalance_enable: bool = boolean(True, ANY,
        "Move leadership back to preferred replicas that are in sync, on brokers that ran since the check before.")
    leader_imbalance_per_broker_percentage: int = int32(10, between(0, 100),
        "Of the partitions that prefer a broker, the share that is led elsewhere above which they move back.",
        "percent")
    leader_imbalance_check_interval_seconds: int = int64(300, at_least(1),
        "How often it is checked, first so long after a controller's election.")
    failure_detection_refused_ms: int = int32(300, at_least(0),
        "A broker whose address refuses connections for so long counts as dead before its session ends, until it "
        "answers. 0: sessions alone count (Strandline's own key).")
    controlled_shutdown_enable: bool = boolean(True, ANY, "Move leadership away before stopping.")
    controlled_shutdown_max_retries: int = int32(3, at_least(0), "Attempts before stopping anyway.")
    controlled_shutdown_retry_backoff_ms: int = int64(5000, at_least(0), "Pause between these attempts.")
    controller_socket_timeout_ms: int = int32(30000, at_least(1), "Limit of requests from and to the controller.")

    # Replication
    num_replica_fetchers: int = int32(1, between(1, 1000), "Fetchers per leader broker.", dynamic=True)
    min_insync_replicas: int = int32(1, at_least(1),
        "Replicas in sync that acks=all needs, and below which the high watermark stays.", dynamic=True)
    replica_lag_time_max_ms: int = int64(30000, at_least(1), "A follower that lags longer leaves the ISR.")
    replica_socket_timeout_ms: int = int32(30000, at_least(1), "Limit of a fetch beyond its waiting time.")
    replica_socket_receive_buffer_bytes: int = int32(65536, at_least(-1), "SO_RCVBUF of fetchers.", honoured=False)
    replica_fetch_max_bytes: int = int32(1048576, at_least(0),
        "Per partition and fetch; a larger first batch is sent whole.")
    replica_fetch_wait_max_ms: int = int32(
        500,
        at_least(0),
        "A fetch waits so long for replica.fetch.min.bytes; up to a third of replica.lag.time.max.ms while all is "
        "committed.",
    )
    replica_fetch_min_bytes: int = int32(1, at_least(0), "A fetch is answered once so much is there.")
    replica_fetch_response_max_bytes: int = int32(10485760, at_least(0), "Per fetch, all partitions.")
    replica_fetch_backoff_ms: int = int32(1000, at_least(0), "Longest pause of a fetcher after an error.")
    replica_high_watermark_checkpoint_interval_ms: int = int64(5000, at_least(1),
        "How often high watermarks are written to disk.")
    replica_selector_class: str | None = string(None, one_of(LEADER_SELECTOR, RACK_AWARE_SELECTOR),
        "Which replica consumers read from: the leader, or one of their own rack (KIP-392).")
    fetch_max_bytes: int = int32(57671680, at_least(1024),
        "Most bytes of one answer to a consumer; a larger first batch is sent whole.")
    max_incremental_fetch_session_cache_slots: int = int32(1000, at_least(0), "Fetch sessions kept.")
    fetch_purgatory_purge_interval_requests: int = int32(1000, at_least(0),
        "Clean-up of waiting fetches.", honoured=False)
    producer_purgatory_purge_interval_requests: int = int32(1000, at_least(0),
        "Clean-up of waiting produces.", honoured=False)
    delete_records_purgatory_purge_interval_requests: int = int32(1, at_least(0),
        "Clean-up of waiting deletions.", honoured=False)
    leader_replication_throttled_rate: int = int64(LONG_MAX, at_least(0),
        "What this broker, as leader of throttled replicas, sends to followers that are not in sync.",
        "bytes per second", dynamic=True)
    follower_replication_throttled_rate: int = int64(LONG_MAX, at_least(0),
        "What this broker fetches for throttled replicas that are not in sync.", "bytes per second", dynamic=True)

    # Logs
    log_dirs: tuple[str, ...] = strings(None, NOT_EMPTY,
        "Folders of the logs, comma separated; log.dir where left out.")
    log_dir: str = string("/tmp/strandline-logs", NOT_EMPTY,
        "Folder of the logs where log.dirs is left out. (Kafka: /tmp/kafka-logs.)")
    num_recovery_threads_per_data_dir: int = int32(1, between(1, 256),
        "Logs of one folder that are loaded at once; logs are loaded at a start only.", dynamic=True, live=False)
    message_max_bytes: int = int32(1048588, at_least(0),
        "Largest batch that producers may send.", dynamic=True)
    max_decompressed_message_bytes: int = int64(67108864, at_least(1),
        "Largest batch when decompressed, where the broker has to decompress.", dynamic=True)
    compression_type: str = string("producer", one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        "Compression of stored batches; producer leaves them as they were sent.", dynamic=True)
    log_segment_bytes: int = int32(1073741824, at_least(14), "A segment is closed at this size.", dynamic=True)
    log_roll_ms: int = int64(None, at_least(1),
        "A segment is closed at this age; log.roll.hours where left out.", dynamic=True)
    log_roll_hours: int = int32(168, at_least(1), "A segment is closed at this age.")
    log_roll_jitter_ms: int = int64(None, at_least(0),
        "Up to so much is taken off that age, at random; log.roll.jitter.hours where left out.", dynamic=True)
    log_roll_jitter_hours: int = int32(0, at_least(0), "Up to so much is taken off that age, at random.")
    log_retention_ms: int = int64(None, at_least(-1), "Records older may be deleted; -1: never.", dynamic=True)
    log_retention_minutes: int | None = int32(None, at_least(-1), "As log.retention.ms, where that is left out.")
    log_retention_hours: int = int32(168, at_least(-1), "As log.retention.minutes, where that is left out.")
    log_retention_bytes: int = int64(-1, at_least(-1), "Most bytes of a partition; -1: no limit.", dynamic=True)
    log_retention_check_interval_ms: int = int64(300000, at_least(1), "How often retention is checked.")
    log_cleanup_policy: tuple[str, ...] = strings(("delete",), all_of("delete", "compact"),
        "What happens to old records: delete whole segments, compact to the newest record per key, or both.",
        dynamic=True)
    log_cleaner_enable: bool = boolean(True, ANY, "Run the cleaner of compacted topics.")
    log_cleaner_threads: int = int32(1, at_least(0), "Logs that are compacted at once.", dynamic=True)
    log_cleaner_dedupe_buffer_size: int = int64(134217728, at_least(1),
        "Memory for the offset maps of all cleaners together, 24 bytes per key.", "bytes", dynamic=True)
    log_cleaner_io_buffer_load_factor: float = double(0.9, between(0.01, 1),
        "How full an offset map gets before a round ends.", dynamic=True)
    log_cleaner_io_buffer_size: int = int32(524288, at_least(0),
        "Read and write buffers of all cleaners together.", "bytes", dynamic=True)
    log_cleaner_io_max_bytes_per_second: float = double(1.7976931348623157e+308, at_least(0),
        "Most that all cleaners together read and write.", "bytes per second", dynamic=True)
    log_cleaner_backoff_ms: int = int64(15000, at_least(0),
        "Pause of a cleaner that found nothing to do.", dynamic=True)
    log_cleaner_min_cleanable_ratio: float = double(0.5, between(0, 1),
        "Logs are cleaned above this share of dirty bytes; 1: never for it.", dynamic=True)
    log_cleaner_delete_retention_ms: int = int64(86400000, at_least(0),
        "How long tombstones of a compacted log stay.", dynamic=True)
    log_cleaner_min_compaction_lag_ms: int = int64(0, at_least(0),
        "Records younger than this are not compacted.", dynamic=True)
    log_cleaner_max_compaction_lag_ms: int = int64(LONG_MAX, at_least(1),
        "Records that wait longer are compacted whatever the ratio says; closes segments as log.roll.ms does.",
        dynamic=True)
    log_index_size_max_bytes: int = int32(10485760, at_least(12),  # `index_bounds`
        "A segment is closed when its index is so long.", dynamic=True)
    log_index_interval_bytes: int = int32(4096, at_least(0), "Bytes of log between two index entries.", dynamic=True)
    log_flush_interval_messages: int = int64(LONG_MAX, at_least(1),
        "fsync after so many records.", "records", dynamic=True)
    log_flush_interval_ms: int = int64(None, at_least(0),
        "fsync records at this age; log.flush.scheduler.interval.ms where left out.", dynamic=True)
    log_flush_scheduler_interval_ms: int = int64(LONG_MAX, at_least(0), "How often records are fsynced by age.")
    log_flush_offset_checkpoint_interval_ms: int = int32(60000, at_least(1),
        "How often recovery points are written to disk.")
    log_flush_start_offset_checkpoint_interval_ms: int = int32(60000, at_least(1),
        "How often log start offsets are written to disk.")
    log_segment_delete_delay_ms: int = int64(60000, at_least(0),
        "Files of deleted segments and logs stay for so long, renamed.", dynamic=True)
    log_preallocate: bool = boolean(False, ANY,
        "Reserve segment.bytes on the disk when a segment is created, until it is closed (Linux).", dynamic=True)
    log_message_timestamp_type: str = string("CreateTime", one_of("CreateTime", "LogAppendTime"),
        "Whose clock stamps records.", dynamic=True)
    log_message_timestamp_difference_max_ms: int = int64(LONG_MAX, at_least(0),
        "Largest distance of a timestamp from the broker's clock, both ways (Kafka's older key).", dynamic=True)
    log_message_timestamp_before_max_ms: int = int64(LONG_MAX, at_least(0),
        "Largest distance of a timestamp into the past.", dynamic=True)
    log_message_timestamp_after_max_ms: int = int64(LONG_MAX, at_least(0),
        "Largest distance of a timestamp into the future.", dynamic=True)
    log_message_downconversion_enable: bool = boolean(True, ANY,
        "Serve consumers of old formats.", dynamic=True,
        why_not="Fetch is served from version 4 on: no record is converted to an older format")
    log_message_format_version: str | None = string(None, NOT_EMPTY, "Records are always in format 2.", honoured=False)
    inter_broker_protocol_version: str | None = string(None, NOT_EMPTY,
        "Brokers agree on versions by themselves.", honoured=False)

    # Groups
    group_min_session_timeout_ms: int = int32(6000, at_least(1), "Shortest session of a group member.")
    group_max_session_timeout_ms: int = int32(300000, at_least(1),
        "Longest session of a group member. (Kafka 1.0's; Kafka 3.9: 1800000.)")
    group_initial_rebalance_delay_ms: int = int32(3000, at_least(0),
        "A new group waits so long for members.")
    group_max_size: int = int32(INT_MAX, at_least(1), "Most members of a group.", "members")
    group_consumer_session_timeout_ms: int = int32(45000, at_least(1), "Session of a member (KIP-848).", honoured=False)
    group_consumer_heartbeat_interval_ms: int = int32(5000, at_least(1),
        "Heartbeats of a member (KIP-848).", honoured=False)
    offsets_topic_num_partitions: int = int32(50, at_least(1),
        "Partitions of the topic of committed offsets.")
    offsets_topic_replication_factor: int = int32(3, at_least(1), "Its replicas.")
    offsets_topic_segment_bytes: int = int32(104857600, at_least(1), "Its segments.")
    offsets_topic_compression_codec: int = int32(0, between(0, 4),
        "Its compression: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.")
    offsets_retention_minutes: int = int32(10080, at_least(1), "How long offsets of a dead group stay.")
    offsets_retention_check_interval_ms: int = int64(600000, at_least(1), "How often that is checked.")
    offsets_load_buffer_size: int = int32(5242880, at_least(1),
        "Read at once when offsets are loaded.", "bytes")
    offsets_commit_timeout_ms: int = int32(5000, at_least(1),
        "How long a commit waits for its replicas.")
    offsets_commit_required_acks: int = int32(-1, at_least(-1), "acks of a commit.", honoured=False)
    offset_metadata_max_bytes: int = int32(4096, at_least(0), "Longest metadata of a commit.")

    # Transactions and producers
    transaction_state_log_num_partitions: int = int32(50, at_least(1),
        "Partitions of the topic of transactions.", honoured=False)
    transaction_state_log_replication_factor: int = int32(3, at_least(1), "Its replicas.", honoured=False)
    transaction_state_log_min_isr: int = int32(2, at_least(1), "Its min.insync.replicas.", honoured=False)
    transaction_state_log_segment_bytes: int = int32(104857600, at_least(1), "Its segments.", honoured=False)
    transaction_state_log_load_buffer_size: int = int32(5242880, at_least(1),
        "Read at once when loaded.", "bytes", honoured=False)
    transaction_max_timeout_ms: int = int32(900000, at_least(1), "Longest transaction.", honoured=False)
    transactional_id_expiration_ms: int = int32(604800000, at_least(1),
        "An idle transactional id is forgotten.", honoured=False)
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = int32(60000, at_least(1),
        "Aborting late ones. (Kafka 1.0's; Kafka 3.9: 10000.)", honoured=False)
    transaction_remove_expired_transaction_cleanup_interval_ms: int = int32(3600000, at_least(1),
        "Forgetting ids.", honoured=False)
    producer_id_expiration_ms: int = int32(86400000, at_least(1), "An idle producer id is forgotten.", dynamic=True)
    transaction_partition_verification_enable: bool = boolean(True, ANY,
        "Check partitions of a transaction.", dynamic=True, why_not="transactions are not served yet")

    # Quotas and metrics
    quota_producer_default: int = int64(LONG_MAX, at_least(1),
        "Of each client id that produces. (Kafka 1.0's; gone in Kafka 3.9.)", "bytes per second", honoured=False)
    quota_consumer_default: int = int64(LONG_MAX, at_least(1),
        "Of each client id that consumes. (Kafka 1.0's; gone in Kafka 3.9.)", "bytes per second", honoured=False)
    quota_window_num: int = int32(11, at_least(1),
        "For so many windows a client makes up at most for what exceeds its quota.")
    quota_window_size_seconds: int = int32(1, at_least(1),
        "A client that was quiet may take at once what its quota gives in such a window.", "seconds")
    controller_quota_window_num: int = int32(11, at_least(1),
        "Who was quiet may create and delete at once what controller_mutation_rate gives in so many windows.")
    controller_quota_window_size_seconds: int = int32(1, at_least(1), "Length of such a window.", "seconds")
    replication_quota_window_num: int = int32(11, at_least(1),
        "For so many windows a replication throttle makes up for a batch that is larger than its rate allows.")
    replication_quota_window_size_seconds: int = int32(1, at_least(1),
        "A replication throttle that was not used saves up what its rate gives in such a window.")
    metrics_num_samples: int = int32(2, at_least(1), "Samples of a metric.", honoured=False)
    metrics_sample_window_ms: int = int64(30000, at_least(1), "Length of a sample.", honoured=False)
    metrics_per_partition: bool = boolean(True, ANY,
        "Series for each partition at /metrics, not only for topics and the broker.", dynamic=True)
    metric_reporters: tuple[str, ...] = strings((), ANY, "Classes that report metrics.", dynamic=True,
        why_not="Java classes cannot be run here: figures are read from the admin port (admin.listener)")
    kafka_metrics_reporters: tuple[str, ...] = strings((), some_of("kafka.metrics.KafkaCSVMetricsReporter"),
        "Who reports metrics, beside /metrics of the admin port.")
    kafka_metrics_polling_interval_secs: int = int32(10, at_least(1), "How often these report.", "seconds")
    kafka_csv_metrics_reporter_enabled: bool = boolean(False, ANY,
        "Whether kafka.metrics.KafkaCSVMetricsReporter writes; kafka.metrics.reporters has to name it, too.")
    kafka_csv_metrics_dir: str = string("kafka_metrics", NOT_EMPTY,
        "Its folder: in `broker-<id>` below it a file per metric, with a line for each series and time. Nobody removes "
        "them.")
    # fmt: on


BROKER_KEYS: dict[str, ConfigKey] = keys_of(BrokerConfig)
"""By name, in the order of the reference page."""

REPLACED_KEYS = {
    "port": "listeners",
    "host.name": "listeners",
    "advertised.port": "advertised.listeners",
    "advertised.host.name": "advertised.listeners",
}
"""Kafka 1.0's older spellings: not read, and the warning names what to write instead."""

LATER_PREFIXES = (
    "ssl.",
    "sasl.",
    "listener.name.",
    "zookeeper.ssl.",
    "zookeeper.client",
    "password.encoder.",
    "delegation.token.",
    "confluent.",
    "process.roles",
    "node.id",
    "controller.quorum.",
)
"""Families of keys that Kafka knows and this build does not act on."""
