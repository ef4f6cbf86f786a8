"""One tally of crash points for all tests here, shown at the end of a run in one process: the figure of the release
notes.

`make soak` draws many more power failures per point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from strandline.protocol.types import TopicPartition
from strandline.storage.errors import LogClosed
from strandline.storage.manager.log_manager import LogManager
from support.crash_points import Between, Expected, Point, Tally, nothing_between, survive_every_crash
from support.log_audit import States, states_of
from support.log_machine import LogMachine
from support.sampling import IS_SOAK
from support.storage_site import StorageSite

TALLY = Tally()
RANDOM_LOSSES = 40 if IS_SOAK else 2


class Broker:
    """A broker's storage under test: prepare it through `site` and `manager`, then let `survives` run the operation."""

    def __init__(self, site: StorageSite, name: str) -> None:
        self.site = site
        self.name = name
        self.manager: LogManager
        self.history: list[States] = []
        self.tally = TALLY

    def start(self) -> LogManager:
        self.manager = self.site.start()
        self.manager.mark_loss_handled()
        return self.manager

    def remember(self) -> None:
        """The logs are as they are now; a power failure may bring this back."""
        self.history.append(states_of(self.manager))

    def recovery_points(self) -> Mapping[TopicPartition, int]:
        return {tp: log.recovery_point for tp, log in self.manager.logs.items()}

    def survives(
        self,
        operate: Callable[[], Any],
        *,
        between: Between = nothing_between,
        at_end: Between = nothing_between,
        after: Callable[[States], None] | None = None,
        also: Callable[[LogManager, Point, bool], None] | None = None,
        before: States | None = None,
        may_vanish: bool = False,
        short_indexes: bool = False,
    ) -> None:
        """`operate` may end at any disk operation. `after` checks the model: what the operation made of the logs.
        before: where the manager cannot tell any more."""
        before = states_of(self.manager) if before is None else before

        def expected() -> Expected:
            is_closed = any(isinstance(log.failure, LogClosed) for log in self.manager.logs.values())
            now = before if is_closed else states_of(self.manager)
            if after is not None:
                after(now)
            return Expected(before, now, between, at_end, may_vanish, self.history, also)

        survive_every_crash(
            self.name,
            self.site,
            operate,
            expected,
            self.recovery_points,
            tally=self.tally,
            random_losses=RANDOM_LOSSES,
            short_indexes=short_indexes,
        )


@pytest.fixture
def broker(site: StorageSite, request: pytest.FixtureRequest) -> Broker:
    return Broker(site, request.node.name)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if TALLY.rows:
        terminalreporter.write_line(str(TALLY))
    if LogMachine.examples:
        terminalreporter.write_line(LogMachine.report())
