"""The broker daemon: start-up, what runs while it serves, and shutdown, top to bottom.

    server: coordination | log manager | handlers | ISR updates | fetchers (one per leader broker) | checkpoints
      controller (while elected: one sender per live broker)
      connections (get a deadline at shutdown)
        listeners (cancelled first)

`data_plane` builds the replicas and what handles their data. ARCHITECTURE.md follows one Produce request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from uuid import UUID

import trio

from strandline import __version__
from strandline.broker.admin.admin_port import AdminPort
from strandline.broker.admin.config_changes import ConfigChanges, EntityKind
from strandline.broker.admin.health_check import HealthCheck
from strandline.broker.admin.topic_configs import TopicConfigs
from strandline.broker.data_plane import DataPlane
from strandline.broker.groups.coordinator import GroupCoordinator
from strandline.broker.groups.handovers import Handovers
from strandline.broker.groups.letting_go import LettingGo
from strandline.broker.handlers.configs import ConfigHandlers
from strandline.broker.handlers.controller_link import ControllerLink
from strandline.broker.handlers.creations import AutomaticCreations
from strandline.broker.handlers.group_offsets import OffsetHandlers
from strandline.broker.handlers.groups import GroupHandlers
from strandline.broker.handlers.inventory import InventoryHandler
from strandline.broker.handlers.orders import OrderHandlers
from strandline.broker.handlers.producer_ids import ProducerIdHandler
from strandline.broker.handlers.queries import QueryHandler
from strandline.broker.handlers.quotas import QuotaHandlers
from strandline.broker.membership.broker_key import draw_key, is_key
from strandline.broker.membership.cluster_identity import find_cluster
from strandline.broker.membership.leaving import leave_cluster
from strandline.broker.membership.producer_ids import take_block
from strandline.broker.membership.registration import Registration
from strandline.broker.membership.reported_losses import forget_reported_loss
from strandline.broker.metrics.broker_life import BrokerState, broker_life
from strandline.broker.metrics.broker_sources import BrokerSources
from strandline.broker.metrics.csv_reporter import CsvReporter
from strandline.broker.metrics.exposition import Exposition
from strandline.broker.metrics.of_controller import OfController
from strandline.broker.metrics.sources import MetricSources
from strandline.broker.network.dialects.kafka import KAFKA
from strandline.broker.network.dialects.native import NATIVE
from strandline.broker.network.listeners import Listeners
from strandline.broker.network.request_channel import RequestChannel, WorkQueue
from strandline.broker.network.unflushed_connections import UnflushedConnections
from strandline.broker.patience import DELAY_TOLD_INTERVAL_S, until_answered
from strandline.broker.quotas.entities import CONTROLLER_MUTATION_RATE
from strandline.broker.quotas.gate import QuotaGate
from strandline.broker.quotas.mutations import MutationGate
from strandline.broker.quotas.quotas import Quotas
from strandline.broker.replication.isr_checks import run_isr_checks
from strandline.broker.served_apis import served_apis
from strandline.broker.upkeep.cleaning import Cleaning
from strandline.broker.upkeep.departed_replicas import DepartedReplicas, EpochQuestions
from strandline.broker.upkeep.disk_failures import DiskFailures
from strandline.broker.upkeep.housekeeping import Housekeeping
from strandline.broker.upkeep.loading import load_logs
from strandline.broker.upkeep.retention_checks import RetentionChecks
from strandline.broker.upkeep.signs_of_life import run_signs_of_life
from strandline.controller.controller import Controller
from strandline.controller.orders.channel import connector
from strandline.protocol.api import APIS
from strandline.protocol.znodes import BrokerIdZnode
from strandline.runtime.beats import share_beats
from strandline.runtime.config.broker import BrokerConfig
from strandline.runtime.config.topic import topic_config
from strandline.runtime.coordination import Coordination
from strandline.runtime.environment import Environment
from strandline.runtime.logging import BrokerLogs, RateLimited
from strandline.runtime.network import Address
from strandline.runtime.versions import versions
from strandline.storage.disk.storage_context import DEFAULT_OPEN_FILES
from strandline.storage.manager.log_manager import LogManager
from strandline.storage.manager.partition_folders import topics_in

SHUTDOWN_GRACE_S = 5.0
"""What connections get at shutdown to receive the answers that are due."""
QUEUED_BYTES = 256 * 2**20
"""Of requests and large frames in memory at once, where `queued.max.request.bytes` sets no limit."""


class Broker:
    """One broker. `run` starts it, reports the bound addresses when it serves, and returns after `shut_down`."""

    def __init__(
        self, config: BrokerConfig, environment: Environment, coordination: Coordination, logs: BrokerLogs
    ) -> None:
        self.config = config
        self.environment = environment
        self.coordination = coordination
        self.broker_id = config.broker_id
        self._logs = logs
        self._log = logs.main
        self._stop = trio.Event()
        self._start = trio.CancelScope()
        self._serves = False
        self._cluster_id = ""
        self.state = BrokerState.NOT_RUNNING
        self.metrics = MetricSources(self._log)
        """Whoever builds a part of the broker adds what tells of it."""
        self.metrics.add("broker", broker_life(lambda: self.state, versions()))

    def shut_down(self) -> None:
        """Ask for a controlled shutdown, or give up the start where it is not over; `run` returns when that is done.
        Idempotent."""
        self._stop.set()
        if not self._serves:
            self._start.cancel()

    async def run(self, *, task_status: trio.TaskStatus[dict[str, Address]] = trio.TASK_STATUS_IGNORED) -> None:
        """Start, serve, stop.

        1 ask ZooKeeper which cluster it holds, and for the configurations of the broker and its topics, in which it has
        a word; 2 load the logs by these (recovers what an unclean stop left); 3 build and start the data plane; 4 bind,
        register, elect: from here on others know of this broker; 5 serve until asked to stop; 6 leave.

        Asked to stop before 5, it undoes what it began as after a failure, and returns without having reported. A start
        that ends before 3 has changed no log: one that an orderly stop left whole is left so again.

        Raises StorageError, CannotListen, BrokerIdTaken, UnreadableCluster, CoordinationError for what keeps it from
        starting.
        """
        share_beats()
        with self._start:
            await self._run(task_status)
        if not self._serves:
            self._log.info("stopped before it served")

    async def _run(self, task_status: trio.TaskStatus[dict[str, Address]]) -> None:
        try:
            # 1
            self.state = BrokerState.STARTING
            await self.coordination.start()
            new_id = UUID(int=self.environment.random("cluster-id").getrandbits(128), version=4)
            limited = RateLimited(self._log, interval_s=DELAY_TOLD_INTERVAL_S)
            self._cluster_id = await find_cluster(self.coordination, new_id, limited)
            self.config_changes = ConfigChanges(self.config, self.coordination, self._log)
            self.config = await self.config_changes.begin()
            environment = self.environment
            environment.blocking.set_threads(self.config.background_threads)
            topics = await environment.blocking.run(topics_in, environment.disk, self.config.log_dirs)
            configs = await self.config_changes.of_topics(topics)
            # 2
            self.log_manager = LogManager(
                environment.disk,
                self.config.log_dirs,
                broker_id=self.broker_id,
                cluster_id=self._cluster_id,
                topic_config_for=lambda topic: configs.get(topic) or topic_config(self.config, {}),
                wall_clock=environment.wall_clock,
                random=environment.random("storage"),
                log=self._log,
                # The rest is for connections: a file that is kept open and not used must not keep anybody out.
                max_open_files=min(DEFAULT_OPEN_FILES, self.environment.max_descriptors // 2),
            )
            await load_logs(self.log_manager, environment, self.config.num_recovery_threads_per_data_dir, self._log)
            await self._run_with_logs(task_status)
        finally:
            with trio.CancelScope(shield=True), trio.move_on_after(SHUTDOWN_GRACE_S):
                await self.coordination.close()
            self.state = BrokerState.NOT_RUNNING

    async def _run_with_logs(self, task_status: trio.TaskStatus[dict[str, Address]]) -> None:
        """The steps from 2 on, once the logs are loaded."""
        clean = self.log_manager.was_clean
        try:
            lock_id, key = self.log_manager.directories.lock_id, draw_key(self.environment.random("broker key"))
            self.registration = Registration(self.broker_id, lock_id, self.coordination, self._log, key)
            self.registration.on_registered = self._note_registration
            begin_life = partial(self.environment.blocking.run, self.log_manager.directories.begin_life)
            await self.registration.prepare(begin_life)
            # 3
            clean = False
            self._build()
            async with trio.open_nursery() as nursery:
                await self._start_data_plane(nursery)
                # 4
                await self._open_for_business(nursery)
                await trio.lowlevel.checkpoint_if_cancelled()  # asked to stop a moment ago: it never served
                self._serves = True
                self.state = BrokerState.RUNNING
                task_status.started(self.listeners.addresses)
                # 5
                await self._stop.wait()
                # 6
                await self._leave(nursery)
            await self.environment.blocking.run(
                self.log_manager.checkpoints.write_high_watermarks, self.data.checkpoints.high_watermarks()
            )
            clean = True
        finally:
            clean = clean and not self.log_manager.directories.is_loss_open
            with trio.CancelScope(shield=True):
                await self.environment.blocking.run(partial(self.log_manager.close, clean=clean))

    # --- 3: the data plane -------------------------------------------------------------------------------------

    def _build(self) -> None:
        self.unflushed_connections = UnflushedConnections()
        self.work = WorkQueue(self.config.queued_max_requests)
        self._build_data_plane(self.unflushed_connections.flush, self.work.put)
        self._build_control()
        self.channel = self._build_channel()
        self._follow_changes()
        self._limit_by_quotas()
        network, is_known = self.environment.network, partial(is_key, key=self.registration.broker_key)
        self.listeners = Listeners(
            self.config_changes.config, network, self.channel, self._log, self.quotas.connections, is_known
        )
        self._add_metrics()
        self.health = HealthCheck(
            self.broker_id,
            versions(),
            self._cluster_id,
            self.data.metadata,
            self.data.replicas.partitions,
            self.log_manager,
            self.registration,
            self.coordination,
            self.listeners,
            self.environment.wall_clock,
            self.broker_sources.volumes.known,
            self.cleaning.left_alone,
            self.metrics.failing.lately,
            self._log,
        )

    def _add_metrics(self) -> None:
        """In the order in which they are told."""
        self.broker_sources = BrokerSources(
            self.config_changes.config,
            self.channel,
            OfController(self.controller),
            self.data,
            self.groups,
            self.log_manager,
            self.housekeeping,
            self.cleaning,
            self.listeners,
            self.coordination,
            self.environment,
            self.quotas,
        )
        self.broker_sources.add_to(self.metrics)

    def _build_data_plane(
        self, send_answers: Callable[[], None], submit: Callable[[Callable[[], Awaitable[None]]], None]
    ) -> None:
        self.data = DataPlane(
            self.broker_id,
            self.config_changes.config,
            self.environment,
            self.log_manager,
            self.coordination,
            incarnation=self.registration.incarnation,
            send_answers=send_answers,
            submit=submit,
            log=self._log,
            state_change_log=self._logs.state_change,
        )

    def _new_controller(self) -> Controller:
        config, environment = self.config, self.environment
        return Controller(
            self.broker_id,
            config,
            self.coordination,
            connector(
                environment.network,
                client_id=f"controller-{self.broker_id}",
                timeout_ms=config.controller_socket_timeout_ms,
            ),
            environment.random("controller"),
            self._logs.controller,
            self._logs.state_change,
            environment.wall_clock.now_ms,
        )

    def _build_control(self) -> None:
        self.quotas = Quotas(self.config_changes.config, self.coordination, self._log)
        self.controller = self._new_controller()
        self.topic_configs = TopicConfigs(self.config_changes.config, self.coordination, self._log)
        self.topic_configs.watch(self.controller.configurations_changed)
        replicas, roles = self.data.replicas, self.data.roles
        self.orders = OrderHandlers(self.topic_configs, replicas, roles, self.registration, self._log)
        ask_leader = EpochQuestions(replicas, self.environment.network, self._log).ask_leader
        self.departed = DepartedReplicas(
            self.log_manager, replicas, roles, ask_leader, self.orders.forget_topics, self._log
        )
        self.controller_link = ControllerLink(replicas, self.environment.network, self.controller)
        self.configs = ConfigHandlers(
            self.broker_id, self.config_changes.dynamic, self.data.metadata, self.coordination, self._log
        )
        self.creations = AutomaticCreations(self.controller_link.ask, self._log)
        self.mutations = MutationGate(
            self.quotas.sensors[CONTROLLER_MUTATION_RATE], self.data.metadata, self.config_changes.config
        )
        self.producer_ids = ProducerIdHandler(
            partial(take_block, self.coordination, self.broker_id), self.unflushed_connections.flush, self._log
        )
        self.groups = GroupCoordinator(
            replicas,
            self.data.group_log,
            self.data.burst,
            self.data.deadlines,
            self.environment.random("groups"),
            self._log,
        )
        self.letting_go = LettingGo(self.groups, replicas)
        self.handovers = Handovers(self.groups, replicas, self.data.group_loader.load, self.letting_go.look, self._log)
        self.queries = QueryHandler(
            self.log_manager,
            replicas,
            self.data.burst,
            self.environment.computing,
            cluster_id=self._cluster_id,
            software_version=__version__,
            broker_key=self.registration.broker_key,
            create_topics=partial(self.mutations.create_automatically, self.creations.add),
        )
        environment, checkpoints = self.environment, self.data.checkpoints
        self.housekeeping = Housekeeping(self.config, environment, self.log_manager, replicas, checkpoints)
        self.cleaning = Cleaning(environment, self.log_manager, replicas, checkpoints, self._log)
        self.inventory = InventoryHandler(
            self.log_manager, replicas, environment.disk, environment.blocking, cluster_id=self._cluster_id
        )

    def _limit_by_quotas(self) -> None:
        """They are read before anybody is served, and again when they change."""
        quotas = self.quotas
        for kind, (read_again, troubled) in quotas.readers().items():
            self.config_changes.kinds[kind] = EntityKind(read_again, troubled)
        quotas.limit(self.channel, QuotaGate(quotas.sensors), self.mutations)

    def _build_channel(self) -> RequestChannel:
        config = self.config
        return RequestChannel(
            handlers=served_apis(
                data=self.data,
                queries=self.queries,
                inventory=self.inventory,
                configs=self.configs,
                groups=GroupHandlers(self.groups, self.data.replicas, self.creations.add),
                offsets=OffsetHandlers(self.groups, self.data.replicas),
                quotas=QuotaHandlers(self.quotas, self.coordination, self._log),
                producer_ids=self.producer_ids,
                controller_link=self.controller_link,
                orders=self.orders,
            ),
            dialects=(NATIVE, KAFKA),
            end_of_burst=self.data.burst.end,
            unflushed_connections=self.unflushed_connections,
            work=self.work,
            warm=self.data.warm,
            read_failed=self.log_manager.directories.read_failed,
            max_queued_bytes=config.queued_max_request_bytes if config.queued_max_request_bytes > 0 else QUEUED_BYTES,
            num_handlers=config.num_io_threads,
            log=self._log,
        )

    def _follow_changes(self) -> None:
        """What was made of dynamic keys follows them while it runs."""
        current, blocking = self.config_changes.config, self.environment.blocking
        current.watch(
            self.cleaning.change_pace,
            BrokerConfig.log_cleaner_backoff_ms,
            BrokerConfig.log_cleaner_io_max_bytes_per_second,
        )
        current.watch(self._advertise_anew, BrokerConfig.advertised_listeners)
        current.watch(lambda: blocking.set_threads(current.value.background_threads), BrokerConfig.background_threads)
        current.watch(lambda: self.channel.set_num_handlers(current.value.num_io_threads), BrokerConfig.num_io_threads)

    async def _start_data_plane(self, nursery: trio.Nursery) -> None:
        await until_answered(self.quotas.read_all)
        await nursery.start(self.channel.run)
        await nursery.start(self.data.followers.run)
        await nursery.start(self.listeners.run_processors)
        config, environment, logs = self.config, self.environment, self.log_manager
        data, replicas, burst = self.data, self.data.replicas, self.data.burst
        background: list[Callable[[], Awaitable[None]]] = [
            data.isr_updates.run,
            self.creations.run,
            self.producer_ids.run,
            self.handovers.run,
            self.letting_go.run,
            partial(data.deadlines.run, burst.end),
            partial(run_isr_checks, replicas, burst),
            partial(run_signs_of_life, replicas),
            data.checkpoints.run_high_watermarks,
            data.rebuilds.run,
            self.departed.run,
            data.log_starts.run,
            self.housekeeping.run,
            RetentionChecks(config, environment, logs, replicas, burst, self._log).run,
            DiskFailures(logs, replicas, burst, environment.blocking, self._log).run,
            self.registration.run,
            self.broker_sources.run,
            self.health.problems.run,
            CsvReporter(self.metrics.collect, config, environment, self._log).run,
            partial(self.config_changes.run, self.topic_configs, replicas, burst),
            self.cleaning.run,
        ]
        for task in background:
            nursery.start_soon(task)

    # --- 4: others learn of this broker ------------------------------------------------------------------------

    async def _open_for_business(self, nursery: trio.Nursery) -> None:
        """Bind first, so that the registration names real ports; register; then stand for election."""
        await self.listeners.bind()
        if self.config.admin_listener is not None:
            metrics = Exposition(self.metrics.collect).answer
            admin = AdminPort(self.config.admin_listener, self.environment.network, self.health, metrics, self._log)
            self.config_changes.dynamic.bound(await nursery.start(admin.run))
        await self.listeners.start_acceptors(nursery)
        await self.registration.register(self._registration_znode())
        nursery.start_soon(forget_reported_loss, self.log_manager, self.registration, self.environment.blocking)
        await nursery.start(self.controller.run)
        self.listeners.announce()

    def _note_registration(self, broker_epoch: int) -> None:
        """The state-change log tells one life of this broker from the next."""
        incarnation = self.registration.incarnation
        self._logs.state_change.info("broker registered", broker_epoch=broker_epoch, incarnation=incarnation)

    def _advertise_anew(self) -> None:
        if self.registration.is_announced:  # else it says so in the first place
            self.registration.change(self._registration_znode())
            self.listeners.announce()

    def _registration_znode(self) -> BrokerIdZnode:
        return BrokerIdZnode(
            endpoints=self.listeners.advertised(),
            timestamp_ms=self.environment.wall_clock.now_ms(),
            rack=self.config.broker_rack,
            lock_id=self.registration.lock_id,
            lossy_start=self.log_manager.may_have_lost_data,
            apis={int(key): api.native for key, api in APIS.items()},
            broker_key=self.registration.broker_key,
        )

    # --- 6: leaving --------------------------------------------------------------------------------------------

    async def _leave(self, nursery: trio.Nursery) -> None:
        """1 leadership moves away while everything still runs; 2 nobody new gets in; 3 this broker leads nothing any
        more, and answers that are due leave; 4 the rest ends; the logs are closed and the clean marker written by the
        caller, last."""
        self.health.leave()
        self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
        # 1
        await self._hand_over()
        self.data.followers.stop_all()
        # 2
        self.state = BrokerState.SHUTTING_DOWN
        self.listeners.close()
        # 3
        self._logs.state_change.info("broker stopped", broker_epoch=self.registration.broker_epoch)
        await self.data.roles.resign_all()
        await self.listeners.finish(trio.current_time() + SHUTDOWN_GRACE_S)
        # 4
        nursery.cancel_scope.cancel()

    async def _hand_over(self) -> None:
        self.data.replicas.is_leaving = True
        if self.config.controlled_shutdown_enable:
            with trio.move_on_after(self.config.controller_socket_timeout_ms / 1000):
                await leave_cluster(self.config, self.registration, self.controller_link.ask, self._log)
