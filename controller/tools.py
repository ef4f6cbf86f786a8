"""What all rooms of one term work with, and nothing of the rooms themselves: imports go up from here."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from strandline.controller.agenda import Agenda
from strandline.controller.controller_context import ControllerContext
from strandline.controller.counts import ControllerCounts
from strandline.controller.orders.sender import Outbox
from strandline.controller.store import ClusterStore
from strandline.runtime.config.broker import BrokerConfig


@dataclass(slots=True)
class Tools:
    """`context`: the picture of the cluster. `store`: the way to ZooKeeper. `outbox`: the way to the brokers. `config`:
    this broker's, replaced whole when a dynamic key changes. `counts`: of all terms."""

    config: BrokerConfig
    context: ControllerContext
    store: ClusterStore
    outbox: Outbox
    agenda: Agenda
    counts: ControllerCounts
    log: structlog.typing.FilteringBoundLogger
