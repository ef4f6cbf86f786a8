"""What handlers ask of ZooKeeper on behalf of a client, who is told within bounds when it does not answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from strandline.protocol.errors import BrokerError, ErrorCode
from strandline.runtime.coordination import CoordinationError, NoAuth, RequestTooLarge

R = TypeVar("R")
PATIENCE_S = 20.0
"""Per request. Clients wait 30 s for an answer."""


async def asking_zookeeper(ask: Callable[[], Awaitable[R]], until: float) -> R:
    """BrokerError where it does not answer by then (on trio's clock): whoever asked may ask again, what it asks for can
    be done twice."""
    why = "no answer"
    with trio.CancelScope(deadline=until):
        try:
            return await ask()
        except RequestTooLarge as error:
            raise BrokerError(ErrorCode.INVALID_CONFIG, f"more than ZooKeeper takes: {error}") from error
        except NoAuth as error:
            raise kept_out(str(error)) from error
        except CoordinationError as error:
            why = str(error)
    raise BrokerError(ErrorCode.REQUEST_TIMED_OUT, f"ZooKeeper is out of reach, repeat: {why}")


def kept_out(why: str) -> BrokerError:
    """By an access control list of ZooKeeper. Kafka's code for it; to ask again helps nobody."""
    text = f"ZooKeeper keeps this broker out: mend the access control list ({why})"
    return BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, text)
