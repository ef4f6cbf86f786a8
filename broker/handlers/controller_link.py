"""What is the controller's (creation and deletion of topics, elections, controlled shutdowns) goes to it as it came."""

from __future__ import annotations

from typing import Protocol

from strandline.broker.network.request import RequestInHand
from strandline.broker.replication.questions import Questions
from strandline.broker.replication.replicas import Replicas
from strandline.protocol.messages import Message, Request
from strandline.runtime.network import Network

CONTROLLER_TIMEOUT_MS = 30_000


class ControlPlane(Protocol):
    """The controller as its own broker asks it."""

    @property
    def is_active(self) -> bool:
        """Elected, and able to answer."""

    async def ask(self, request: Request) -> Message:
        """Its answer. BrokerError NOT_CONTROLLER while another broker is elected."""


class ControllerLink:
    """The way to the controller: `controller` is this broker's, which acts if it is elected."""

    def __init__(self, replicas: Replicas, network: Network, controller: ControlPlane) -> None:
        self._replicas = replicas
        self._questions = Questions(replicas, network)
        self._controller = controller

    async def handle(self, request: RequestInHand[Request]) -> Message:
        """What a client or a broker asks of it, of any API that is the controller's. Who asks has looked for it: where
        it is not here that fails with NOT_CONTROLLER."""
        return await self._controller.ask(request.message)

    async def ask(self, message: Request) -> Message:
        """What this broker asks of it, wherever it is. Raises ClientError when it cannot be reached; BrokerError."""
        if self._controller.is_active:
            return await self._controller.ask(message)
        return await self._questions.ask(self._replicas.metadata.controller_id, message, CONTROLLER_TIMEOUT_MS)
