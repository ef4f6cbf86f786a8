"""A watch on the process of one life of a broker: a connection that is kept open, and what becomes of the next ones.

    connect ─> wait until it breaks ─> connect ─> …         nothing is sent, nobody is asked while it stands
         └─ refused: count (`refusals`), meanwhile look for a witness (`witnesses`) ─> `on_gone`
         └─ other failures tell nothing: again after a pause

A broker that closes an idle connection (`connections.max.idle.ms`) takes the next one: nothing comes of that. Whether
what `on_gone` says still counts is for whoever hears it to find out: it is told by ZooKeeper, not here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog
import trio

from strandline.controller.controller_context import LiveBroker
from strandline.controller.liveness.refusals import MIN_PACE_S, FalseAlarms, RefusalCount
from strandline.controller.orders.channel import (
    BrokerChannel,
    BrokerRefusesConnections,
    BrokerUnreachable,
    ConnectToBroker,
)

MAX_PAUSE_S = 2.0
"""Between attempts that fail otherwise than by a refusal."""
WITNESS_PATIENCE_S = 2.0

Listener = Callable[[LiveBroker], None]
FindWitness = Callable[[LiveBroker], Awaitable[bool]]
"""Whether somebody else than this broker can be reached now, or nobody else is there."""


class ProcessWatch:
    """Runs until `close`. is_suspected: its process was found to be gone, and has not been reached since."""

    def __init__(
        self,
        broker: LiveBroker,
        *,
        refused_ms: int,
        connect: ConnectToBroker,
        false_alarms: FalseAlarms,
        find_witness: FindWitness,
        on_gone: Listener,
        on_reached: Listener,
        log: structlog.typing.FilteringBoundLogger,
        is_suspected: bool = False,
    ) -> None:
        """on_gone, on_reached: told in turns, in plain calls. `refused_ms`: `failure.detection.refused.ms`."""
        self.broker = broker
        self.is_suspected = is_suspected
        self._refused_ms = refused_ms
        self._connect = connect
        self._false_alarms = false_alarms
        self._find_witness = find_witness
        self._on_gone, self._on_reached = on_gone, on_reached
        self._log = log.bind(broker=broker.broker_id, broker_epoch=broker.epoch)
        self._scope = trio.CancelScope()
        self._channel: BrokerChannel | None = None
        self._witness = _Witness()

    def close(self) -> None:
        """Ends `run`. Idempotent, never waits."""
        self._scope.cancel()

    async def run(self) -> None:
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    while True:
                        await self._reach(nursery)
                        await self._until_broken()
        finally:
            self._hang_up()

    async def _reach(self, nursery: trio.Nursery) -> None:
        """Connect, for as long as that takes, and count the refusals on the way."""
        count = RefusalCount(self._refused_ms, self._false_alarms.of(self.broker))
        pause_s = count.pace_s
        while self._channel is None:
            try:
                self._channel = await self._connect(self.broker)
            except BrokerRefusesConnections:
                pause_s = count.pace_s
                await self._refused(count, nursery)
                await trio.sleep(pause_s)
            except BrokerUnreachable:
                count.begin_anew()
                pause_s = min(2 * pause_s, MAX_PAUSE_S)
                await trio.sleep(pause_s)
        if self.is_suspected:
            self.is_suspected = False
            times = self._false_alarms.note(self.broker)
            self._log.warning("broker that was suspected answers", false_alarms_of_this_life=times)
            self._on_reached(self.broker)

    async def _refused(self, count: RefusalCount, nursery: trio.Nursery) -> None:
        if self.is_suspected:
            return
        if not count.has_begun:
            self._witness = _Witness()
            nursery.start_soon(self._witness.look, self._find_witness, self.broker)
        if not count.refused(trio.current_time()):
            return
        count.begin_anew()
        await self._witness.known.wait()
        if self._witness.is_found:
            self.is_suspected = True
            self._on_gone(self.broker)
        else:
            self._log.warning("a broker refuses connections, and no other one can be reached: its session decides")

    async def _until_broken(self) -> None:
        assert self._channel is not None
        since = trio.current_time()
        await self._channel.until_broken()
        self._hang_up()
        # The next attempt follows at once, but where connections break as soon as they are made.
        await trio.sleep_until(since + max(self._refused_ms / 1000, MIN_PACE_S))

    def _hang_up(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None


class _Witness:
    """What looking for one comes to."""

    def __init__(self) -> None:
        self.known = trio.Event()
        self.is_found = False

    async def look(self, find: FindWitness, broker: LiveBroker) -> None:
        with trio.move_on_after(WITNESS_PATIENCE_S):
            self.is_found = await find(broker)
        self.known.set()
