"""The controller of an in-memory cluster ended at any of its steps: each transaction that it writes under its epoch,
each request that it sends to a broker. What a step is does not depend on what the controller is doing, so whatever it
learns to do is covered by one more row of the scenario test.

    steps = await taken(row)                     once, to its end: what the steps are
    await play(row, Stop(4, is_after=True, way=Way.CRASH))

A stop comes right before a step, or right after: the write was applied and its answer is lost, the broker has done what
it was told and its answer is not heard. `Way` says what ends: the broker, its session, or only the connection.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import trio

from strandline.controller.controller_context import LiveBroker
from strandline.controller.orders.channel import BrokerChannel, ConnectToBroker
from strandline.controller.orders.sender import BrokerSender
from strandline.controller.term.term import Term
from strandline.protocol.messages import Message, Request
from strandline.protocol.znodes import CONTROLLER_EPOCH_PATH
from strandline.testkit.cluster import MemoryCluster
from strandline.testkit.zookeeper import client as zookeeper_client
from strandline.testkit.zookeeper.client import MemoryCoordination


class Way(enum.Enum):
    """How the controller ends.

    CRASH: its broker is killed, which others notice by its address, and comes back while its session lives.
    CRASH_FOR_LONG: it comes back when the others have done without it what can be done. VANISH: the same, and only its
    session tells. REFUSE: its address refuses for a while, so another one is elected; it lives and has its session.
    EXPIRE: its session ends, the broker goes on and stands for election again. CUT: the connection to ZooKeeper breaks
    and is there again at once; the term goes on. A request to a broker has no such way to end."""

    CRASH = "its broker is killed"
    CRASH_FOR_LONG = "its broker is killed and stays away"
    VANISH = "its machine is off"
    REFUSE = "its address refuses"
    EXPIRE = "its session ends"
    CUT = "its connection breaks"


@dataclass(frozen=True)
class Stop:
    """At which step, and how."""

    step: int
    is_after: bool
    way: Way

    def __str__(self) -> str:
        return f"{self.way.value} {'after' if self.is_after else 'before'} step {self.step}"


@dataclass
class Step:
    """`text`: for whoever reads a failure. `has_end`: it was done, and the controller could hear so; a broker that
    stops may not answer."""

    text: str
    is_write: bool
    has_end: bool = False


class Steps:
    """What the controllers of a cluster do, one step after the other, and the stop that ends one of them."""

    def __init__(self, cluster: MemoryCluster, stop: Stop | None) -> None:
        self._cluster = cluster
        self._stop = stop
        self._is_counting = False
        self.taken: list[Step] = []
        self.stopped = trio.Event()
        self.who = 0
        """The broker that was controller."""

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Brokers that start within the block are watched; `count` begins the counting."""
        sender, Term.SENDER = Term.SENDER, _sender_of(self)
        self._cluster.zookeeper.on_write = self._on_write
        try:
            yield
        finally:
            Term.SENDER = sender
            self._cluster.zookeeper.on_write = None

    def count(self, is_counting: bool = True) -> None:
        self._is_counting = is_counting

    def _on_write(self, client: MemoryCoordination, request: zookeeper_client.Request, is_done: bool) -> bool:
        """False: the connection breaks here."""
        if not self._is_counting or request.path != CONTROLLER_EPOCH_PATH:
            return True
        if not is_done:
            self.begin(Step(f"writes {', '.join(request.paths[1:5])}", is_write=True))
        nodes = self._cluster.nodes.values()
        [who] = [node.broker_id for node in nodes if node.coordination and node.coordination.client is client]
        is_ended = self.ends(len(self.taken) - 1, who, is_after=is_done)
        return not is_ended or (self._stop is not None and self._stop.way is Way.REFUSE)

    def begin(self, step: Step) -> int:
        """Its number, −1 where nobody counts."""
        if not self._is_counting:
            return -1
        self.taken.append(step)
        return len(self.taken) - 1

    def ends(self, number: int, who: int, *, is_after: bool) -> bool:
        """Whether the controller has just been ended."""
        if is_after and number >= 0:
            self.taken[number].has_end = True
        stop = self._stop
        if stop is None or self.stopped.is_set() or (number, is_after) != (stop.step, stop.is_after):
            return False
        self.who = who
        self.stopped.set()
        if stop.way in (Way.CRASH, Way.CRASH_FOR_LONG):
            self._cluster.crash(who)
        elif stop.way is Way.VANISH:
            self._cluster.vanish(who)
        elif stop.way is Way.REFUSE:
            self._cluster.refuse(who)
        elif stop.way is Way.EXPIRE:
            self._cluster.expire_session(who)
        return True


class _WatchedChannel:
    """`BrokerChannel` of which each request is a step."""

    def __init__(self, inner: BrokerChannel, steps: Steps, controller_id: int, broker_id: int) -> None:
        self._inner = inner
        self._steps = steps
        self._controller_id = controller_id
        self._broker_id = broker_id

    async def request(self, message: Request) -> Message:
        step = Step(f"sends {type(message).__name__} to broker {self._broker_id}", is_write=False)
        number = self._steps.begin(step)
        self._steps.ends(number, self._controller_id, is_after=False)
        await trio.lowlevel.checkpoint()  # who was killed gets no further
        answer = await self._inner.request(message)
        self._steps.ends(number, self._controller_id, is_after=True)
        await trio.lowlevel.checkpoint()
        return answer

    def close(self) -> None:
        self._inner.close()


def _sender_of(steps: Steps) -> type[BrokerSender]:
    class WatchedSender(BrokerSender):
        def __init__(self, broker: LiveBroker, *, controller_id: int, connect: ConnectToBroker, **facts: Any) -> None:
            async def connect_watched(to: LiveBroker) -> BrokerChannel:
                return _WatchedChannel(await connect(to), steps, controller_id, to.broker_id)

            super().__init__(broker, controller_id=controller_id, connect=connect_watched, **facts)

    return WatchedSender
