"""A broker's replicas and the handlers of their data, built from top to bottom: each part is given what it uses.

changes, deadlines ── replicas ── appends, group log ── burst ── checkpoints ─┬─ ISR updates, index rebuilds, …
                                                                              └─ followers ── role changes ── handlers
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import structlog

from strandline.broker.groups.loading import GroupLoader
from strandline.broker.handlers.delete_records import DeleteRecordsHandler
from strandline.broker.handlers.fetch import FetchHandler
from strandline.broker.handlers.produce import ProduceHandler
from strandline.broker.metadata_cache import MetadataCache
from strandline.broker.network.regions import warm_in_threads
from strandline.broker.replication.appends import Appends
from strandline.broker.replication.burst import Burst, Changes
from strandline.broker.replication.checkpoint_schedule import CheckpointSchedule
from strandline.broker.replication.converter import Converter
from strandline.broker.replication.cuts import CutCheckpoints
from strandline.broker.replication.deadlines import Deadlines
from strandline.broker.replication.follower import Followers
from strandline.broker.replication.index_rebuilds import IndexRebuilds
from strandline.broker.replication.isr_updates import IsrUpdates
from strandline.broker.replication.log_starts import LogStartWrites
from strandline.broker.replication.own_appends import OwnAppends
from strandline.broker.replication.replicas import Replicas
from strandline.broker.replication.role_changes import RoleChanges
from strandline.broker.replication.stalled_followers import StalledFollowers
from strandline.broker.replication.throttles import quota_by
from strandline.protocol.records import Codec
from strandline.runtime.config.broker import RACK_AWARE_SELECTOR, BrokerConfig
from strandline.runtime.config.dynamic import CurrentConfig
from strandline.runtime.coordination import Coordination
from strandline.runtime.environment import Environment
from strandline.storage.manager.log_manager import LogManager


class DataPlane:
    """See the module."""

    def __init__(
        self,
        broker_id: int,
        config: CurrentConfig,
        environment: Environment,
        logs: LogManager,
        coordination: Coordination,
        *,
        incarnation: int,
        send_answers: Callable[[], None],
        submit: Callable[[Callable[[], Awaitable[None]]], None],
        log: structlog.typing.FilteringBoundLogger,
        state_change_log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        """incarnation: which start of this broker this is. send_answers: sends what handlers answered. submit: has work
        done by a handler task."""
        blocking, computing = environment.blocking, environment.computing
        is_near = config.value.replica_selector_class == RACK_AWARE_SELECTOR
        changes, self.deadlines = Changes(tell_followers=is_near), Deadlines()
        self.metadata = MetadataCache()
        self.replicas = Replicas(broker_id, config, self.metadata, changes, state_change_log)
        appends = Appends(self.replicas, changes, self.deadlines)
        self.group_log = OwnAppends(
            appends,
            environment.wall_clock,
            codec=partial(_codec_of_offsets, config),
            timeout_s=partial(_commit_timeout_s, config),
        )
        self.burst = Burst(environment.wall_clock, changes, self.group_log.write, send_answers)
        self.checkpoints = CheckpointSchedule(logs, self.replicas, blocking)
        self.isr_updates = IsrUpdates(self.replicas, self.burst, coordination, state_change_log)
        self.warm = warm_in_threads(blocking)
        self.rebuilds = IndexRebuilds(logs, self.replicas, self.burst, self.warm)
        self.log_starts = LogStartWrites(logs, self.checkpoints, self.burst)
        cuts = CutCheckpoints(logs, self.checkpoints)
        fetched = quota_by(config, BrokerConfig.follower_replication_throttled_rate)
        self.followers = Followers(
            self.replicas, incarnation, environment, self.burst, cuts, self.log_starts, fetched, log
        )
        config.watch(self.followers.spread_anew, BrokerConfig.num_replica_fetchers)
        self.roles = RoleChanges(
            logs, self.replicas, self.burst, self.checkpoints, self.isr_updates, self.followers, state_change_log
        )
        self.converter = converter = Converter(computing, config, state_change_log)
        self.produce = ProduceHandler(self.replicas, appends, self.burst, converter, environment.wall_clock)
        stalled = StalledFollowers(logs, self.replicas, self.checkpoints, self.burst, blocking)
        self.group_loader = GroupLoader(
            self.replicas, self.deadlines, self.burst, stalled.look, blocking, computing, log
        )
        random = environment.random("fetch-sessions")
        sent = quota_by(config, BrokerConfig.leader_replication_throttled_rate)
        self.fetch = FetchHandler(
            self.replicas, self.burst, self.deadlines, stalled, self.warm, submit, random, sent, log
        )
        self.delete_records = DeleteRecordsHandler(
            self.replicas, self.burst, self.deadlines, self.log_starts, state_change_log
        )


def _codec_of_offsets(config: CurrentConfig) -> str:
    return Codec(config.value.offsets_topic_compression_codec).name.lower()


def _commit_timeout_s(config: CurrentConfig) -> float:
    return config.value.offsets_commit_timeout_ms / 1000
