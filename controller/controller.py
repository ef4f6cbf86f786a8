"""The controller of the cluster, as far as this broker takes part in it: elects for ever, acts while elected.

`Controller.run` is the whole life; a `Term` is one stretch of being controller. Between two terms nothing is kept and
nothing is sent. The session's end pre-empts everything.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import structlog
import trio

from strandline.controller.agenda import NotController
from strandline.controller.controller_context import LiveBroker
from strandline.controller.counts import ControllerCounts
from strandline.controller.liveness.refusals import FalseAlarms
from strandline.controller.orders.channel import ConnectToBroker
from strandline.controller.standing_watches import StandingWatches
from strandline.controller.term.controller_election import Won, try_to_be_elected
from strandline.controller.term.succession import Succession
from strandline.controller.term.term import Term
from strandline.protocol.messages import Message, Request
from strandline.protocol.znodes import BrokerIdZnode, InvalidZnode
from strandline.runtime.config.broker import BrokerConfig
from strandline.runtime.coordination import Coordination, CoordinationError, SessionState, WatchEvent

FIRST_BACKOFF_SECONDS = 0.1
MAX_BACKOFF_SECONDS = 5.0


class Controller:
    """Takes part in elections from `run` on, while the broker is registered in `/brokers/ids` by the same session: a
    controller that does not count itself among the living would move its own leaderships away. `TERM`: a search over
    many orders of moves has one without tasks."""

    TERM: type[Term] = Term

    def __init__(
        self,
        broker_id: int,
        config: BrokerConfig,
        coordination: Coordination,
        connect_to_broker: ConnectToBroker,
        rng: random.Random,
        log: structlog.typing.FilteringBoundLogger,
        state_change_log: structlog.typing.FilteringBoundLogger | None = None,
        now_ms: Callable[[], int] = lambda: -1,
    ) -> None:
        """`rng` draws topic ids and election back-off; `now_ms`: wall clock for the timestamp in `/controller`."""
        self.broker_id = broker_id
        self._config = config
        self._coordination = coordination
        self._random = rng
        self._log = log
        self._now_ms = now_ms
        self._term: Term | None = None
        self._wake = trio.Event()
        self._watches = StandingWatches()
        self.counts = ControllerCounts()
        false_alarms = FalseAlarms()
        self._succession = Succession(config, coordination, connect_to_broker, false_alarms, rng, log)
        self._begin_term = partial(
            self.TERM,
            broker_id=broker_id,
            coordination=coordination,
            connect=connect_to_broker,
            rng=rng,
            log=log,
            state_change_log=state_change_log or log,
            false_alarms=false_alarms,
            counts=self.counts,
            watches=self._watches,
        )
        coordination.add_session_listener(self._on_session)

    def configurations_changed(self, config: BrokerConfig) -> None:
        """Of this broker, or of a topic: an unclean election may be allowed now that was not."""
        self._config = config
        if self._term is not None:
            self._term.configurations_changed(config)

    # --- Figures -----------------------------------------------------------------------------------------------

    @property
    def term(self) -> Term | None:
        """The present term, None while somebody else is controller."""
        return self._term if self._term is not None and self._term.over is None else None

    @property
    def is_active(self) -> bool:
        """Elected and through the fail-over."""
        return self.term is not None and self.term.active

    @property
    def epoch(self) -> int:
        """Controller epoch of the present term, −1 without one."""
        return -1 if self.term is None else self.term.context.epoch

    # --- Life --------------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Stand for election, act while elected, for ever. `task_status` is started at once: who wins is not
        awaited."""
        task_status.started()
        failures = 0
        gone: LiveBroker | None = None
        while True:
            await self._usable_session()
            self._wake = trio.Event()
            found_gone, gone = gone, None  # what was found counts once: it may be answering by the next time
            try:
                won = None
                if await self._is_registered():
                    won = await try_to_be_elected(
                        self._coordination, self.broker_id, self._now_ms(), self._on_change, self._log, found_gone
                    )
            except (CoordinationError, InvalidZnode) as error:
                self._log.warning("election attempt failed", error=str(error))
                failures += 1
            else:
                if won is None:
                    gone = await self._until_news()
                    continue
                failures = await self._serve(won, failures)
            await trio.sleep(self._backoff_seconds(failures))

    async def _until_news(self) -> LiveBroker | None:
        """/controller changed, or the registration, or the session: None; or the controller's process is gone: its
        life."""
        gone: list[LiveBroker] = []

        async def watch_controller() -> None:
            gone.append(await self._succession.until_gone())
            self._wake.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch_controller)
            await self._wake.wait()
            nursery.cancel_scope.cancel()
        return gone[0] if gone else None

    async def _serve(self, won: Won, failures: int) -> int:
        """One term. Returns how many terms and attempts in a row came to nothing."""
        self._log.info("elected controller", controller_epoch=won.epoch)
        term = self._term = self._begin_term(won=won, config=self._config)
        served = False
        try:
            await term.run()
        except Exception:
            # A bug in one of its tasks: the term is over, the next one starts from what ZooKeeper says.
            self._log.exception("a task of the controller failed", controller_epoch=won.epoch)
        finally:
            served = term.was_active
            self._term = None
            self._watches.end_term()
        return 0 if served else failures + 1

    def _backoff_seconds(self, failures: int) -> float:
        """Jittered, so that brokers do not take turns in lock step."""
        longest = min(MAX_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * (1 << min(failures, 10)))
        return longest * (0.5 + self._random.random() / 2)

    async def _usable_session(self) -> None:
        """Wait until ZooKeeper answers: a role that ended for its silence does not come back before that."""
        while self._coordination.state is not SessionState.CONNECTED:
            self._wake = trio.Event()
            await self._wake.wait()
        await trio.lowlevel.checkpoint()

    async def _is_registered(self) -> bool:
        stat = await self._coordination.exists(BrokerIdZnode.path(self.broker_id), self._on_change)
        return stat is not None and stat.ephemeral_owner == self._coordination.session_id

    def _on_change(self, _: WatchEvent) -> None:
        self._wake.set()

    def _on_session(self, state: SessionState) -> None:
        self._wake.set()
        if state is SessionState.EXPIRED and self._term is not None:
            self._term.resign("the ZooKeeper session expired")

    # --- Requests ----------------------------------------------------------------------------------------------

    async def ask(self, request: Request) -> Message:
        """The acting controller's answer to what a client or a broker asks of it, once it is known. NotController from
        any other; BrokerError for a request that is refused as a whole."""
        if self.term is None:
            raise NotController
        return await self.term.ask(request)
