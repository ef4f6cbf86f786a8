"""What any broker can be asked: one after the other, and whoever answers first.

Rules: a broker that is silent for a while may still be at work, so it is neither given up nor asked again; the next one
is asked beside it, and the first answer counts. What changes something is never under way at two brokers: the slower
one might do it long after, over what came later. Who was silent is asked last from then on, until it answers anything.
"""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import trio

from strandline.client.errors import ClientError
from strandline.client.metadata import SILENT_AFTER_S

R = TypeVar("R")

_PATIENCE_SHARE = 1 / 3
"""So much of what is left of its time a question waits for one broker alone, and never longer than SILENT_AFTER_S."""


class FirstAnswers:
    """Which brokers a client asks first, and the asking."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._silent: set[int] = set()

    def has_answered(self, broker_id: int) -> None:
        """Anything."""
        self._silent.discard(broker_id)

    def in_order(self, brokers: Iterable[int], preferred: int) -> list[int]:
        """The preferred one, the others in any order, and last those that were silent."""
        order = list(brokers)
        self._chance.shuffle(order)
        return sorted(order, key=lambda broker_id: (broker_id in self._silent, broker_id != preferred))

    async def first(
        self, brokers: Iterable[int], ask: Callable[[int], Awaitable[R | None]], deadline: float, *, is_change: bool
    ) -> tuple[int, R] | None:
        """Who answered, and what; None where nobody did. `ask`: one of them, until the deadline at the latest; None
        where another one is to be asked. Its ClientErrors end the question."""
        outcomes: list[tuple[int, R] | ClientError] = []

        async def one(broker_id: int, ended: trio.Event) -> None:
            try:
                answer = await ask(broker_id)
            except ClientError as error:
                outcomes.append(error)
            else:
                if answer is not None:
                    outcomes.append((broker_id, answer))
            if outcomes:
                nursery.cancel_scope.cancel()
            ended.set()

        async with trio.open_nursery() as nursery:
            for broker_id in brokers:
                ended = trio.Event()
                nursery.start_soon(one, broker_id, ended)
                left_s = max(0.0, deadline - trio.current_time())
                with trio.move_on_after(math.inf if is_change else min(SILENT_AFTER_S, left_s * _PATIENCE_SHARE)):
                    await ended.wait()
                if not ended.is_set():
                    self._silent.add(broker_id)
        if not outcomes:
            return None
        if isinstance(outcomes[0], ClientError):
            raise outcomes[0]
        return outcomes[0]
