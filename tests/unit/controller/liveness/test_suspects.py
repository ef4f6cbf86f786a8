"""Who lives, from what is registered and what was said of processes: without tasks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
import structlog

from strandline.controller.agenda import Agenda, Event
from strandline.controller.controller_context import ControllerContext, LiveBroker
from strandline.controller.counts import ControllerCounts
from strandline.controller.liveness.refusals import FalseAlarms
from strandline.controller.liveness.suspects import Suspects
from strandline.controller.tools import Tools
from strandline.runtime.config.reading import load_broker_config
from strandline.runtime.network import Address

ALL = {n: LiveBroker(n, 10 * n, (), Address(f"b{n}", 9092)) for n in (1, 2, 3)}


class RecordingAgenda(Agenda):
    """Starts nothing, and keeps what it was to start."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[Any] = []

    def start(self, function: Event) -> None:
        self.started.append(cast(Any, function).__self__)


class Site:
    def __init__(self, found_gone: LiveBroker | None = None, **properties: str) -> None:
        config = load_broker_config({"broker.id": "1", "zookeeper.connect": "memory:0", **properties})
        self.agenda = RecordingAgenda()
        self.context = ControllerContext()
        log = structlog.wrap_logger(structlog.testing.CapturingLogger())
        tools = Tools(config, self.context, cast(Any, None), cast(Any, None), self.agenda, ControllerCounts(), log)
        self.suspects = Suspects(tools, 1, cast(Any, None), FalseAlarms(), found_gone)
        self.suspects.look = self.look

    async def look(self) -> None: ...

    def watch_of(self, broker_id: int) -> Any:
        return next(watch for watch in reversed(self.agenda.started) if watch.broker.broker_id == broker_id)

    def lose(self, broker_id: int) -> None:
        watch = self.watch_of(broker_id)
        watch._on_gone(watch.broker)


async def test_everybody_registered_lives_and_all_others_are_watched() -> None:
    site = Site()
    assert list(site.suspects.live(ALL)) == [1, 2, 3]
    assert [watch.broker.broker_id for watch in site.agenda.started] == [2, 3]
    site.suspects.live(ALL)
    assert len(site.agenda.started) == 2, "each is watched once"


async def test_who_is_gone_does_not_live_while_it_is_registered() -> None:
    site = Site()
    site.suspects.live(ALL)
    site.lose(2)
    assert len(site.agenda) == 1, "somebody is to look"
    for _ in range(2):
        assert list(site.suspects.live(ALL)) == [1, 3]
        assert site.context.suspects == {2: ALL[2]}
    assert list(site.suspects.live({1: ALL[1], 3: ALL[3]})) == [1, 3]
    assert site.context.suspects == {}


@pytest.mark.parametrize(
    "registered", [replace(ALL[2], epoch=99), replace(ALL[2], inter_broker=Address("b2", 9999))], ids=["life", "port"]
)
async def test_another_life_or_another_address_is_not_what_refused(registered: LiveBroker) -> None:
    site = Site()
    site.suspects.live(ALL)
    first = site.watch_of(2)
    site.lose(2)
    now = {**ALL, 2: registered}
    assert site.suspects.live(now) == now
    assert site.context.suspects == {}
    assert first._scope.cancel_called
    assert site.watch_of(2).broker == registered


async def test_who_is_reached_again_stays_a_suspect_until_it_is_taken_in() -> None:
    """In between it does not live yet: what waits for it goes on waiting."""
    site = Site()
    site.suspects.live(ALL)
    site.lose(2)
    site.suspects.live(ALL)
    watch = site.watch_of(2)
    watch._on_reached(watch.broker)
    assert 2 in site.suspects.live(ALL)
    assert site.context.suspects == {2: ALL[2]}


async def test_a_term_that_begins_by_a_death_knows_of_it() -> None:
    site = Site(found_gone=ALL[3])
    assert list(site.suspects.live(ALL)) == [1, 2]
    assert site.watch_of(3).is_suspected and not site.watch_of(2).is_suspected


async def test_where_detection_is_off_nobody_is_watched() -> None:
    site = Site(**{"failure.detection.refused.ms": "0"})
    assert list(site.suspects.live(ALL)) == [1, 2, 3]
    assert site.agenda.started == []
