"""What is the controller's (creation and deletion of topics, elections, controlled shutdowns) goes to it as it came."""

from __future__ import annotations

from typing import Protocol

from strandline.broker.network.request import RequestInHand
from strandline.broker.replication.replicas import Replicas
from strandline.client.connection import Connection
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
        self._network = network
        self._controller = controller

    async def handle(self, request: RequestInHand[Request]) -> Message:
        """What a client or a broker asks of it, of any API that is the controller's. Who asks has looked for it: where
        it is not here that fails with NOT_CONTROLLER."""
        return await self._controller.ask(request.message)

    async def ask(self, message: Request) -> Message:
        """What this broker asks of it, wherever it is. Raises ClientError when it cannot be reached; BrokerError."""
        if self._controller.is_active:
            return await self._controller.ask(message)
        metadata, config = self._replicas.metadata, self._replicas.config
        address = metadata.address_of(metadata.controller_id, config.inter_broker_listener_name)
        client_id = f"broker-{self._replicas.broker_id}"
        connection = await Connection.open(
            self._network, address, client_id=client_id, timeout_ms=CONTROLLER_TIMEOUT_MS
        )
        try:
            response, _ = await connection.roundtrip(message)
            return response
        finally:
            connection.close()
