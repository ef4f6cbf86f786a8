"""Steps that ask ZooKeeper, while the connection breaks under them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from strandline.runtime.coordination import ConnectionLost, SessionExpired
from strandline.runtime.logging import RateLimited

T = TypeVar("T")

RETRY_DELAY_S = 0.2
"""Between two attempts while ZooKeeper does not answer."""
DELAY_TOLD_INTERVAL_S = 10.0


async def until_answered(step: Callable[[], Awaitable[T]], log: RateLimited | None = None) -> T:
    """Repeat a step until it is done: it may be done twice, and a broker that starts just then must not die of it.
    log: tells that a registration is delayed; elsewhere others tell that ZooKeeper is away."""
    while True:
        try:
            return await step()
        except (ConnectionLost, SessionExpired) as error:
            if log is not None:
                log.warning("delayed", "registration delayed", error=str(error))
            await trio.sleep(RETRY_DELAY_S)
