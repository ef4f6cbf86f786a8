"""Partitions that stay offline for want of brokers: who is missed, and an error line for those that wait for long.

Rules:
* What is noted costs no text and no line per partition: it happens on the way to a new leader.
* An ordinary start of all brokers says nothing: until the last of them is back its partitions wait, too.
* All that wait share a line, which names the first few of them and every broker that is missed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import structlog

from strandline.controller.agenda import Agenda
from strandline.controller.controller_context import ControllerContext
from strandline.protocol.types import TopicPartition

GRACE_S = 30.0
"""So long a partition waits before a line is due to it."""
MAX_PARTITIONS_NAMED = 5

ABSENT = "one of the brokers {brokers} must come back: only they have all that was acknowledged"
ABSENT_OR_LOSSY = (
    "every in-sync replica may have lost data: brokers {brokers} must come back, or their loss be accepted"
)
SILENT = "brokers {brokers} live and do not say where their logs end"
LATER_EPOCHS = "brokers {brokers} have logs with later leader epochs than the partition's state in ZooKeeper"
UNDECIDED = "the in-sync replicas ({brokers}) may have lost data, and unclean.recovery.strategy is none"


class _Reason(NamedTuple):
    """`text` has a place for the brokers, one of which, or all, are waited for."""

    text: str
    brokers: tuple[int, ...]


@dataclass(slots=True)
class _Wait:
    """A partition that waits. `is_due`: it did so at the last look already. `said`: what its last line told."""

    reason: _Reason
    is_due: bool = False
    said: _Reason | None = None


class Waits:
    """The partitions of one term that wait; what is said, and when, ends with it."""

    def __init__(self, context: ControllerContext, agenda: Agenda, log: structlog.typing.FilteringBoundLogger) -> None:
        self._context = context
        self._agenda = agenda
        self._log = log
        self._waits: dict[TopicPartition, _Wait] = {}
        self._will_look = False

    def note(self, partitions: Mapping[TopicPartition, tuple[int, ...]], text: str = ABSENT) -> None:
        """These wait for these brokers. Never waits."""
        for tp, brokers in partitions.items():
            reason = _Reason(text, brokers)
            self._waits.setdefault(tp, _Wait(reason)).reason = reason
        if partitions and not self._will_look:
            self._look_later()

    def is_led(self, tp: TopicPartition) -> None:
        """It waits no more."""
        self._waits.pop(tp, None)

    def why(self, tp: TopicPartition) -> str | None:
        """Whom it waits for, and what for; None where it does not wait."""
        if tp not in self._waits:
            return None
        state = self._context.states.get(tp)
        text, brokers = self._waits[tp].reason
        if text == ABSENT and not (state is not None and state.whole):
            text = ABSENT_OR_LOSSY
        refusals = {broker: self._context.offline_replicas.get((broker, tp)) for broker in brokers}
        return text.format(brokers=", ".join(map(str, brokers))) + "".join(
            f"; broker {broker} does not serve its replica: {why}" for broker, why in refusals.items() if why
        )

    def _look_later(self) -> None:
        for wait in self._waits.values():
            wait.is_due = True
        self._will_look = True
        self._agenda.later(self._look, GRACE_S)

    async def _look(self) -> None:
        """Say it of what has waited since the last look."""
        self._will_look = False
        offline = dict.fromkeys(self._context.offline_partitions())
        self._waits = {tp: wait for tp, wait in self._waits.items() if tp in offline}
        self._say()
        if self._waits:
            self._look_later()

    def _say(self) -> None:
        """One line of all that are due, each once per reason."""
        news = {tp: wait for tp, wait in self._waits.items() if wait.is_due and wait.said != wait.reason}
        if not news:
            return
        for wait in news.values():
            wait.said = wait.reason
        named = list(news)[:MAX_PARTITIONS_NAMED]
        example = f"{named[0].topic}:{named[0].partition}"
        self._log.error(
            "partitions stay offline",
            count=len(news),
            brokers=sorted({broker for wait in news.values() for broker in wait.reason.brokers}),
            first={str(tp): self.why(tp) for tp in named},
            remedy=f"strandline recover {example} shows what each replica has, and what helps",
        )
