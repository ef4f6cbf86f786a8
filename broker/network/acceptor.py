"""One listener: accepts connections within the limits and deals them out to the processors, round robin.

A refused connection is closed at once, with one rate-limited line. When the process has no descriptor or memory left
(EMFILE, ENFILE, ENOBUFS, ENOMEM) the acceptor backs off: connections that are being served may free some.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import trio

from strandline.broker.network.limits import ConnectionQuota, ListenerQuota
from strandline.broker.network.processor import Processor
from strandline.broker.network.request_context import RequestContext
from strandline.runtime.logging import Logger, RateLimited
from strandline.runtime.network import Address, Listener, Network, Transport, TransportClosed

ACCEPT_BACKOFF_S = 0.1
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


@dataclass(frozen=True, slots=True)
class ListenerConfig:
    """A listener of the configuration: its name (PLAINTEXT …), where it binds, whether brokers speak on it."""

    name: str
    address: Address
    is_inter_broker: bool
    backlog: int = 128


class Acceptor:
    """See the module. `bind` first, so that the real port is known before anybody is told of it; then `run`."""

    def __init__(
        self,
        config: ListenerConfig,
        network: Network,
        processors: Sequence[Processor],
        quota: ConnectionQuota | ListenerQuota,
        log: Logger,
    ) -> None:
        self.config = config
        self._network = network
        self._processors = processors
        self._quota = quota
        self._log = RateLimited(log)
        self._next = 0
        self._listener: Listener | None = None

    async def bind(self) -> Address:
        """Bind the address (CannotListen) and return the real one: port 0 is replaced. Connections wait until `run`."""
        self._listener = await self._network.listen(self.config.address, self.config.backlog)
        return self._listener.address

    async def run(self, *, task_status: trio.TaskStatus[Address] = trio.TASK_STATUS_IGNORED) -> None:
        """Accept until cancelled (binds if nobody has); then the address is free again."""
        if self._listener is None:
            await self.bind()
        listener = self._listener
        assert listener is not None
        try:
            task_status.started(listener.address)
            while True:
                try:
                    transport = await listener.accept()
                except TransportClosed:
                    return
                except OSError as error:
                    if error.errno not in EXHAUSTED:
                        raise
                    self._log.error(
                        "cannot accept",
                        "cannot accept connections for lack of descriptors or memory; raise the limit (ulimit -n)",
                        listener=self.config.name,
                        error=str(error),
                    )
                    await trio.sleep(ACCEPT_BACKOFF_S)
                else:
                    self._admit(transport)
        finally:
            listener.close()

    def close(self) -> None:
        """Stop listening. Idempotent; for a listener that was bound and never run."""
        if self._listener is not None:
            self._listener.close()

    def _admit(self, transport: Transport) -> None:
        peer = transport.peer
        refusal = self._quota.take(peer.host, self.config.is_inter_broker)
        if refusal is not None:
            transport.close()
            self._log.warning(
                ("refused", peer.host), "refusing a connection", peer=str(peer), listener=self.config.name, why=refusal
            )
            return
        context = RequestContext(self.config.name, self.config.is_inter_broker, peer)
        processor = self._processors[self._next % len(self._processors)]
        self._next += 1
        processor.adopt(transport, context, _once(lambda: self._quota.give_back(peer.host)))


def _once(action: Callable[[], None]) -> Callable[[], None]:
    done = False

    def run() -> None:
        nonlocal done
        assert not done, "a connection is given back once"
        done = True
        action()

    return run
