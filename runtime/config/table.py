"""The broker's configuration, part 1: identity, listeners, network, ZooKeeper, controller, replication.

One row per key: name, kind, default, unit, allowed, documentation, dynamic, honoured. Names, units and defaults are
Kafka's (1.0, with 3.9's for replica.lag.time.max.ms, zookeeper.session.timeout.ms and offsets.retention.minutes); keys
that Kafka does not have say so. Part 2, the logs and everything else, is `table_logs`; `reference` makes
`docs/configuration.md` of both (`make docs`). A default that is not Kafka 3.9's says in its row what Kafka has.
"""

from __future__ import annotations

from strandline.runtime.config.values import (
    ANY,
    INT_MAX,
    NOT_EMPTY,
    ConfigKey,
    at_least,
    between,
    one_of,
)

K = ConfigKey

# A table, one row per key, is easier to read than what the formatter makes of it.
# fmt: off

_IDENTITY = (
    K("broker.id", "int", -1, "", at_least(-1), "Number of this broker in its cluster; each broker needs its own."),
    K("broker.id.generation.enable", "bool", True, "", ANY, "Draw an id where broker.id is -1.", False, False),
    K("reserved.broker.max.id", "int", 1000, "", at_least(0),
      "Largest broker.id while ids may be drawn.", False, False),
    K("broker.rack", "string", None, "", NOT_EMPTY, "Rack or machine: replicas of a partition go to different ones."),
    K("log.folder", "string", None, "", NOT_EMPTY,
      "Folder of the broker's own text logs; standard error where left out (Strandline's own key)."),
    K("admin.listener", "string", "127.0.0.1:0", "", ANY,
      "host:port of the admin port (HTTP: /live, /ready, /status). Port 0: any free one, printed at start; empty: no "
      "admin port (Strandline's own key)."),
)

_LISTENERS = (
    K("listeners", "list", ("PLAINTEXT://127.0.0.1:9092",), "", NOT_EMPTY,
      "Addresses to bind, NAME://host:port. An empty host is 127.0.0.1, in an environment variable every interface; "
      "0.0.0.0 is every interface. Port 0: any free one. (Kafka: all of them.)"),
    K("advertised.listeners", "list", None, "", NOT_EMPTY,
      "Addresses that clients and brokers are told, one per listener; those of listeners where left out.",
      True, live=False),
    K("listener.security.protocol.map", "list",
      ("PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT", "SASL_SSL:SASL_SSL"), "", NOT_EMPTY,
      "Security protocol of each listener name, NAME:PROTOCOL. This build serves PLAINTEXT only."),
    K("inter.broker.listener.name", "string", None, "", NOT_EMPTY,
      "Listener for brokers and the controller; PLAINTEXT, else the first one, where left out."),
    K("security.inter.broker.protocol", "string", "PLAINTEXT", "", one_of("PLAINTEXT"),
      "Security protocol between brokers. This build serves PLAINTEXT only."),
    K("control.plane.listener.name", "string", None, "", NOT_EMPTY,
      "A listener of its own for the controller's requests.", False, False),
    K("authorizer.class.name", "string", "", "", one_of(""),
      "Who may do what. This build has no authorizer and refuses to start with one configured."),
)

_NETWORK = (
    K("num.network.threads", "int", 3, "", at_least(1), "Processors: tasks that share the connections.",
      True, live=False),
    K("num.io.threads", "int", 8, "", at_least(1),
      "Handlers of requests that have to wait (admin, cold reads).", True, live=False),
    K("background.threads", "int", 10, "", at_least(1),
      "Threads for deletion and other background work.", True, False),
    K("queued.max.requests", "int", 500, "", at_least(1), "Requests that wait for a handler; then reading stops."),
    K("queued.max.request.bytes", "long", 134217728, "bytes", at_least(-1),
      "Bytes of requests that wait or are being received beyond the shared buffers; never unlimited: -1 is 256 MiB. "
      "(Kafka: -1.)"),
    K("socket.send.buffer.bytes", "int", 102400, "bytes", at_least(-1),
      "SO_SNDBUF; -1 leaves it to the system.", False, False),
    K("socket.receive.buffer.bytes", "int", 102400, "bytes", at_least(-1),
      "SO_RCVBUF; -1 leaves it to the system.", False, False),
    K("socket.request.max.bytes", "int", 104857600, "bytes", at_least(17), "Longest request; longer ones close."),
    K("socket.listen.backlog.size", "int", 50, "", at_least(1), "Connections that wait to be accepted."),
    K("max.connections", "int", 3000, "", at_least(1), "Open connections, all listeners (Kafka: unlimited).", True),
    K("max.connections.per.ip", "int", 1000, "", at_least(0),
      "Open connections of one client address (Kafka: unlimited).", True),
    K("max.connections.per.ip.overrides", "list", (), "", ANY,
      "host:count, other limits for some addresses.", True, False),
    K("max.connection.creation.rate", "int", INT_MAX, "per second", at_least(0), "New connections.", True, False),
    K("inter.broker.connections.reserved", "int", 100, "", at_least(0),
      "Of max.connections, those kept for the inter-broker listener (Strandline's own key)."),
    K("connections.max.idle.ms", "long", 600000, "ms", at_least(1), "A connection without traffic is closed."),
    K("frame.timeout.ms", "int", 30000, "ms", at_least(1),
      "A request that has begun to arrive has to be complete by then (Strandline's own key)."),
    K("socket.send.timeout.ms", "int", 30000, "ms", at_least(1),
      "A peer that takes no byte of its responses for so long is closed (Strandline's own key)."),
    K("max.in.flight.requests.per.connection", "int", 1024, "", at_least(1),
      "Requests of one connection without a response; then reading stops (Strandline's own key)."),
    K("request.timeout.ms", "int", 30000, "ms", at_least(1),
      "How long requests that brokers send may take.", False, False),
    K("connection.failed.authentication.delay.ms", "int", 100, "ms", at_least(0),
      "Delay of a refusal.", False, False),
)

_ZOOKEEPER = (
    K("zookeeper.connect", "string", None, "", NOT_EMPTY, "host:port,…/chroot of the ZooKeeper ensemble. Required."),
    K("zookeeper.session.timeout.ms", "int", 18000, "ms", at_least(1),
      "A broker that is silent for so long counts as dead."),
    K("zookeeper.connection.timeout.ms", "int", None, "ms", at_least(1),
      "How long the start waits for ZooKeeper; zookeeper.session.timeout.ms where left out."),
    K("zookeeper.max.in.flight.requests", "int", 10, "", at_least(1), "Requests to ZooKeeper at once.", False, False),
    K("zookeeper.set.acl", "bool", False, "", ANY, "Protect znodes by ACLs.", False, False),
)

_CONTROLLER = (
    K("auto.create.topics.enable", "bool", True, "", ANY, "Create a topic when a client first asks for it."),
    K("delete.topic.enable", "bool", True, "", ANY, "Allow topics to be deleted."),
    K("num.partitions", "int", 1, "", at_least(1), "Partitions of a topic whose creator does not say."),
    K("default.replication.factor", "int", 3, "", between(1, 32767),
      "Replicas where the creator does not say. Where left out: 3, or as many as live, with a warning in the "
      "controller's log. What is set is not lowered: with fewer, the creation fails. (Kafka: 1.)"),
    K("unclean.leader.election.enable", "bool", False, "", ANY,
      "Elect a replica that is not in sync when no other lives: records that were acknowledged may be lost.", True),
    K("unclean.recovery.strategy", "string", "balanced", "", one_of("balanced", "none"),
      "When every in-sync replica may have lost data: wait for all and elect the longest log, or leave the "
      "partition offline (Strandline's own key, after KIP-966)."),
    K("auto.leader.rebalance.enable", "bool", True, "", ANY,
      "Move leadership back to preferred replicas.", False, False),
    K("leader.imbalance.per.broker.percentage", "int", 10, "percent", between(0, 100),
      "Share of leaders elsewhere that starts a rebalance.", False, False),
    K("leader.imbalance.check.interval.seconds", "long", 300, "seconds", at_least(1),
      "How often it is checked.", False, False),
    K("controlled.shutdown.enable", "bool", True, "", ANY, "Move leadership away before stopping."),
    K("controlled.shutdown.max.retries", "int", 3, "", at_least(0), "Attempts before stopping anyway."),
    K("controlled.shutdown.retry.backoff.ms", "long", 5000, "ms", at_least(0), "Pause between these attempts."),
    K("controller.socket.timeout.ms", "int", 30000, "ms", at_least(1),
      "Limit of requests from and to the controller."),
)

_REPLICATION = (
    K("num.replica.fetchers", "int", 1, "", at_least(1), "Fetchers per leader broker.", True, live=False),
    K("min.insync.replicas", "int", 1, "", at_least(1),
      "Replicas in sync that acks=all needs, and below which the high watermark stays.", True),
    K("replica.lag.time.max.ms", "long", 30000, "ms", at_least(1), "A follower that lags longer leaves the ISR."),
    K("replica.socket.timeout.ms", "int", 30000, "ms", at_least(1), "Limit of a fetch beyond its waiting time."),
    K("replica.socket.receive.buffer.bytes", "int", 65536, "bytes", at_least(-1),
      "SO_RCVBUF of fetchers.", False, False),
    K("replica.fetch.max.bytes", "int", 1048576, "bytes", at_least(0),
      "Per partition and fetch; a larger first batch is sent whole."),
    K("replica.fetch.wait.max.ms", "int", 500, "ms", at_least(0),
      "A fetch waits so long for replica.fetch.min.bytes."),
    K("replica.fetch.min.bytes", "int", 1, "bytes", at_least(0), "A fetch is answered once so much is there."),
    K("replica.fetch.response.max.bytes", "int", 10485760, "bytes", at_least(0), "Per fetch, all partitions."),
    K("replica.fetch.backoff.ms", "int", 1000, "ms", at_least(0), "Longest pause of a fetcher after an error."),
    K("replica.high.watermark.checkpoint.interval.ms", "long", 5000, "ms", at_least(1),
      "How often high watermarks are written to disk."),
    K("replica.selector.class", "string", None, "", NOT_EMPTY, "Which replica consumers read from.", False, False),
    K("fetch.max.bytes", "int", 57671680, "bytes", at_least(1024),
      "Most bytes of one answer to a consumer; a larger first batch is sent whole."),
    K("max.incremental.fetch.session.cache.slots", "int", 1000, "", at_least(0),
      "Fetch sessions kept.", False, False),
    K("fetch.purgatory.purge.interval.requests", "int", 1000, "", at_least(0),
      "Clean-up of waiting fetches.", False, False),
    K("producer.purgatory.purge.interval.requests", "int", 1000, "", at_least(0),
      "Clean-up of waiting produces.", False, False),
    K("delete.records.purgatory.purge.interval.requests", "int", 1, "", at_least(0),
      "Clean-up of waiting deletions.", False, False),
    K("leader.replication.throttled.rate", "long", 2 ** 63 - 1, "bytes per second", at_least(0),
      "Replication traffic out of this broker.", True, False),
    K("follower.replication.throttled.rate", "long", 2 ** 63 - 1, "bytes per second", at_least(0),
      "Replication traffic into this broker.", True, False),
)

# fmt: on

CLUSTER_SECTIONS: dict[str, tuple[ConfigKey, ...]] = {
    "Identity": _IDENTITY,
    "Listeners": _LISTENERS,
    "Network": _NETWORK,
    "ZooKeeper": _ZOOKEEPER,
    "Topics and controller": _CONTROLLER,
    "Replication": _REPLICATION,
}
