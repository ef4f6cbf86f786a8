"""The registered brokers, as `/brokers/ids` has them: for the acting controller, and for those who may succeed it."""

from __future__ import annotations

import re
from collections.abc import Sequence

import structlog

from strandline.controller.controller_context import LiveBroker
from strandline.protocol import znodes
from strandline.runtime.coordination import Coordination, Znode
from strandline.runtime.network import Address

MAX_BROKER_ID = 2**31 - 1
"""A znode named by a larger number is no broker: no request could speak of it."""


async def read_registrations(
    coordination: Coordination,
    names: Sequence[str],
    inter_broker_listener: str,
    log: structlog.typing.FilteringBoundLogger,
) -> dict[int, LiveBroker]:
    """Brokers by id, of these names below `/brokers/ids`; the czxid of a registration is the broker's epoch. One that
    is gone meanwhile is left out, and so is one that cannot be read, which is reported."""
    ids = [int(name) for name in names if re.fullmatch("[0-9]{1,10}", name) and int(name) <= MAX_BROKER_ID]
    found = await coordination.get_many([znodes.BrokerIdZnode.path(broker_id) for broker_id in ids])
    brokers = {}
    for broker_id, znode in zip(ids, found, strict=True):
        broker = None if znode is None else _broker(broker_id, znode, inter_broker_listener, log)
        if broker is not None:
            brokers[broker_id] = broker
    return brokers


def _broker(
    broker_id: int, znode: Znode, inter_broker_listener: str, log: structlog.typing.FilteringBoundLogger
) -> LiveBroker | None:
    try:
        registration = znodes.BrokerIdZnode.decode(znodes.BrokerIdZnode.path(broker_id), znode.data)
    except znodes.InvalidZnode as error:
        log.error("broker left out: its registration cannot be read", broker=broker_id, error=str(error))
        return None
    endpoints = registration.endpoints
    ours = [e for e in endpoints if e.listener == inter_broker_listener] or list(endpoints)
    if not ours:
        log.error("broker left out: its registration names no endpoint", broker=broker_id)
        return None
    return LiveBroker(
        broker_id,
        znode.stat.czxid,
        endpoints,
        Address(ours[0].host, ours[0].port),
        registration.rack,
        registration.lossy_start,
        registration.broker_key,
    )
