"""Where a broker is reached: one acceptor per listener, the processors that share the connections, what is advertised.

Opened in two steps, since port 0 becomes a real port only when it is bound: `bind`, then others may be told
(`advertised`), and `run` takes connections. Closed in two as well: nobody new gets in, then answers that are due leave.
"""

from __future__ import annotations

from functools import partial

import trio

from strandline.broker.network.acceptor import Acceptor, CreationRates, ListenerConfig
from strandline.broker.network.first_request import IsKey
from strandline.broker.network.limits import ConnectionLimits, ConnectionQuota, ListenerQuota
from strandline.broker.network.processor import Processor
from strandline.broker.network.request_channel import RequestChannel
from strandline.protocol.znodes import BrokerEndpoint
from strandline.runtime.config.address_counts import address_counts
from strandline.runtime.config.broker import BrokerConfig
from strandline.runtime.config.dynamic import CurrentConfig
from strandline.runtime.config.listener_keys import max_connections_of
from strandline.runtime.logging import Logger
from strandline.runtime.network import Address, Network


class Listeners:
    """All listeners of one broker."""

    def __init__(
        self,
        current: CurrentConfig,
        network: Network,
        channel: RequestChannel,
        log: Logger,
        rates: CreationRates,
        is_key: IsKey,
    ) -> None:
        """rates: how fast connections may be made. is_key: by which brokers show what they are, and are served."""
        config = current.value
        limits = ConnectionLimits(
            max_frame_bytes=config.socket_request_max_bytes,
            max_in_flight=config.max_in_flight_requests_per_connection,
            max_idle_ms=config.connections_max_idle_ms,
            frame_deadline_ms=config.frame_timeout_ms,
            send_timeout_ms=config.socket_send_timeout_ms,
        )
        self._quota = ConnectionQuota(*_connection_limits(config))
        current.watch(
            lambda: self._quota.set_limits(*_connection_limits(current.value)),
            BrokerConfig.max_connections,
            BrokerConfig.max_connections_per_ip,
            BrokerConfig.max_connections_per_ip_overrides,
        )
        self.addresses: dict[str, Address] = {}
        """Listener name → bound address."""
        self._current = current
        self._log = log
        self._new_processor = partial(Processor, channel=channel, limits=limits, log=log)
        self._processors: list[Processor] = []
        """Which get the new connections; the acceptors look at this list each time."""
        self._retired: dict[Processor, None] = {}
        """Which still serve old ones."""
        self._resized = trio.Event()
        current.watch(lambda: self._resized.set(), BrokerConfig.num_network_threads)
        self._acceptors = [
            Acceptor(
                ListenerConfig(
                    listener.name,
                    Address(listener.host, listener.port),
                    listener.name == config.inter_broker_listener_name,
                    config.socket_listen_backlog_size,
                    is_brokers_own=len(config.listeners) > 1 and listener.name == config.inter_broker_listener_name,
                ),
                network,
                self._processors,
                self._quota_of(listener.name),
                log,
                rates,
                is_key,
            )
            for listener in config.listeners
        ]

    def _quota_of(self, listener: str) -> ListenerQuota:
        key = max_connections_of(listener)
        return ListenerQuota(self._quota, key, lambda: self._current.value.of_listeners.get(key))

    async def run_processors(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """As many as `num.network.threads` says, also when it changes: who is one too many keeps its connections, gets
        no new ones and ends with the last of them. Until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                self._resized = trio.Event()
                wanted = self._current.value.num_network_threads
                for number in range(len(self._processors), wanted):
                    processor = self._new_processor(number)
                    await nursery.start(self._run_processor, processor)
                    self._processors.append(processor)
                for processor in self._processors[wanted:]:
                    self._retired[processor] = None
                    processor.retire()
                del self._processors[wanted:]
                task_status.started()
                task_status = trio.TASK_STATUS_IGNORED
                await self._resized.wait()

    async def _run_processor(
        self, processor: Processor, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        await processor.run(task_status=task_status)
        self._retired.pop(processor, None)

    async def bind(self) -> None:
        """CannotListen when an address is taken or not ours."""
        for acceptor in self._acceptors:
            self.addresses[acceptor.config.name] = await acceptor.bind()

    async def start_acceptors(self, nursery: trio.Nursery) -> None:
        for acceptor in self._acceptors:
            await nursery.start(acceptor.run)

    def advertised(self) -> tuple[BrokerEndpoint, ...]:
        """Where clients shall reach each listener; port 0 becomes the bound one."""
        return tuple(
            BrokerEndpoint(e.name, e.host, e.port or self.addresses[e.name].port, e.security_protocol)
            for e in self._current.value.advertised_listeners
        )

    def announce(self) -> None:
        """Say which address each listener advertises: one that clients cannot reach is the commonest mistake."""
        for endpoint in self.advertised():
            bound = self.addresses[endpoint.listener]
            self._log.info("listening", bound=str(bound), advertised=str(endpoint))

    def connections(self) -> dict[tuple[str, int], int]:
        """(listener, number of the processor) → how many are open."""
        processors = [*self._processors, *self._retired]
        counts = {(each.config.name, p.number): 0 for each in self._acceptors for p in processors}
        for processor in processors:
            for connection in processor.connections:
                counts[connection.context.listener_name, processor.number] += 1
        return counts

    def unsent(self) -> int:
        """How many connections have answers that their peers did not take at once."""
        processors = [*self._processors, *self._retired]
        return sum(connection.has_unsent for each in processors for connection in each.connections)

    def close(self) -> None:
        """Nobody new gets in. Idempotent."""
        for acceptor in self._acceptors:
            acceptor.close()

    async def finish(self, deadline_s: float) -> None:
        """Answers that are due leave, until the deadline (trio's clock)."""
        async with trio.open_nursery() as closing:
            for processor in (*self._processors, *self._retired):
                closing.start_soon(processor.stop, deadline_s)


def _connection_limits(config: BrokerConfig) -> tuple[int, int, int, dict[str, int]]:
    """As `ConnectionQuota.set_limits` takes them."""
    return (
        config.max_connections,
        config.max_connections_per_ip,
        config.inter_broker_connections_reserved,
        address_counts(config.max_connections_per_ip_overrides),
    )
