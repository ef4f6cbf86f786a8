"""The orderly end of this broker's life in the cluster: others lead before it stops."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import cast

import structlog
import trio

from strandline.broker.membership.registration import Registration
from strandline.client.errors import ClientError
from strandline.protocol.errors import BrokerError, ErrorCode, RemoteProtocolError
from strandline.protocol.messages import ControlledShutdownRequest, ControlledShutdownResponse, Message
from strandline.runtime.config.broker import BrokerConfig

MAX_PARTITIONS_NAMED = 10


async def leave_cluster(
    config: BrokerConfig,
    registration: Registration,
    ask_controller: Callable[[ControlledShutdownRequest], Awaitable[Message]],
    log: structlog.typing.FilteringBoundLogger,
) -> None:
    """Controlled shutdown: have leadership moved away. Tried `controlled.shutdown.max.retries` times more; then this
    broker goes all the same, and the controller notices."""
    attempts = config.controlled_shutdown_max_retries + 1
    remaining = ""
    for attempt in range(attempts):
        if attempt:
            await trio.sleep(min(config.controlled_shutdown_retry_backoff_ms, 1000) / 1000)
        message = ControlledShutdownRequest(registration.broker_id, registration.broker_epoch)
        try:
            response = cast(ControlledShutdownResponse, await ask_controller(message))
            if response.error_code == ErrorCode.NONE and not response.remaining_partitions:
                log.info("controlled shutdown done")
                return
            remaining = _remaining(response)
        except (BrokerError, ClientError, RemoteProtocolError) as error:
            remaining = str(error)
        log.warning("controlled shutdown incomplete", attempt=attempt + 1, of=attempts, remaining=remaining)
    log.warning("stops without handing everything over", remaining=remaining)


def _remaining(response: ControlledShutdownResponse) -> str:
    """What is left to do, for the log."""
    if response.error_code != ErrorCode.NONE:
        return ErrorCode(response.error_code).name
    partitions = [f"{topic}-{index}" for topic, index in response.remaining_partitions]
    more = ", …" if len(partitions) > MAX_PARTITIONS_NAMED else ""
    return f"leads {len(partitions)} partitions: {', '.join(partitions[:MAX_PARTITIONS_NAMED])}{more}"
