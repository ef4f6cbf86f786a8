"""One listener: accepts connections within the limits and deals them out to the processors, round robin.

A refused connection is closed at once, with one rate-limited line. One from an address that connects too fast is kept
unserved for a while first, so that whoever connects again and again has to wait; but who shows meanwhile that it is a
broker is served: clients may come from the same address. All count as open while they are. When
the process has no descriptor or memory left (EMFILE, ENFILE, ENOBUFS, ENOMEM) the acceptor backs off: connections that
are being served may free some.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import trio

from strandline.broker.network.first_request import IsKey
from strandline.broker.network.limits import ConnectionQuota, ListenerQuota
from strandline.broker.network.processor import Processor
from strandline.broker.network.request_context import RequestContext
from strandline.runtime.config.address_counts import plain_address
from strandline.runtime.logging import Logger, RateLimited
from strandline.runtime.network import Address, Listener, Network, Transport, TransportClosed

ACCEPT_BACKOFF_S = 0.1
RATE_LOOK_S = 1.0
"""The rate may be another one by then."""
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


@dataclass(frozen=True, slots=True)
class ListenerConfig:
    """A listener of the configuration: its name (PLAINTEXT …), where it binds, whether brokers speak on it."""

    name: str
    address: Address
    is_inter_broker: bool
    backlog: int = 128
    is_brokers_own: bool = False
    """Clients have another one: how fast connections are made to this one is not limited."""


class CreationRates(Protocol):
    """How fast connections may be made. Times are seconds, `now` of trio's clock."""

    def accept_in_s(self, now: float) -> float:
        """For how long the next connection is left in the system's queue."""

    def note_accepted(self, now: float) -> None: ...

    def refused_for_s(self, ip: str, now: float) -> float:
        """For how long a new connection from there is kept before it is closed; 0: it is served."""


def _nobody_is_known(key: str) -> bool:
    """Where there are no other brokers."""
    return False


class Acceptor:
    """See the module. `bind` first, so that the real port is known before anybody is told of it; then `run`."""

    def __init__(
        self,
        config: ListenerConfig,
        network: Network,
        processors: Sequence[Processor],
        quota: ConnectionQuota | ListenerQuota,
        log: Logger,
        rates: CreationRates | None = None,
        is_key: IsKey = _nobody_is_known,
    ) -> None:
        """rates: None: connections are accepted as fast as they come. is_key: by which brokers show what they are."""
        self.config = config
        self._network = network
        self._processors = processors
        self._quota = quota
        self._rates = None if config.is_brokers_own else rates
        self._is_key = is_key
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
                if self._rates is not None and (left_s := self._rates.accept_in_s(trio.current_time())):
                    await trio.sleep(min(left_s, RATE_LOOK_S))
                    continue
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
        host = plain_address(peer.host)  # a listener of both kinds has IPv4 addresses within IPv6 ones
        refusal = self._quota.take(host, self.config.is_inter_broker)
        if refusal is not None:
            transport.close()
            self._refused(peer, refusal)
            return
        processor = self._processors[self._next % len(self._processors)]
        self._next += 1
        context = RequestContext(self.config.name, False, peer)  # a broker shows its key, wherever it comes in
        on_closed = _once(lambda: self._quota.give_back(host))
        if self._rates is not None:
            now = trio.current_time()
            self._rates.note_accepted(now)
            held_s = self._rates.refused_for_s(host, now)
            if held_s:
                why = "its address exceeds its connection_creation_rate (strandline quotas describe)"
                self._refused(peer, why, "refusing a connection unless it is a broker's")
                processor.hold(transport, context, on_closed, held_s, self._is_key)
                return
        processor.adopt(transport, context, on_closed)

    def _refused(self, peer: Address, why: str, event: str = "refusing a connection") -> None:
        self._log.warning((event, peer.host), event, peer=str(peer), listener=self.config.name, why=why)


def _once(action: Callable[[], None]) -> Callable[[], None]:
    done = False

    def run() -> None:
        nonlocal done
        assert not done, "a connection is given back once"
        done = True
        action()

    return run
