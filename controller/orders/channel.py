"""How a request of the controller gets to one broker, and its answer back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from strandline.client.connection import Connection
from strandline.client.errors import BrokerRefuses, ClientError
from strandline.controller.controller_context import LiveBroker
from strandline.protocol.errors import RemoteProtocolError
from strandline.protocol.messages import Message, Request
from strandline.runtime.network import Network


class BrokerUnreachable(Exception):
    """No answer from a broker; whether it carried the request out is unknown. The text names broker and cause."""


class BrokerRefusesConnections(BrokerUnreachable):
    """Its machine answers, and says that no process listens there."""


class BrokerChannel(Protocol):
    """A connection to one broker's inter-broker listener."""

    async def request(self, message: Request) -> Message:
        """Its answer, of the request's `RESPONSE` class. BrokerUnreachable: use another channel."""

    async def until_broken(self) -> None:
        """Wait, while nothing is asked, until the connection ends."""

    def close(self) -> None: ...


ConnectToBroker = Callable[[LiveBroker], Awaitable[BrokerChannel]]
"""To its inter-broker listener. BrokerUnreachable when nobody, or somebody else, answers there, as
BrokerRefusesConnections where no process listens."""


class ConnectionChannel:
    """`BrokerChannel` over the client's lock-step connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def request(self, message: Request) -> Message:
        try:
            response, _ = await self._connection.roundtrip(message)
        except (ClientError, RemoteProtocolError) as error:
            raise BrokerUnreachable(str(error)) from error
        return response

    async def until_broken(self) -> None:
        await self._connection.until_broken()

    def close(self) -> None:
        self._connection.close()


def connector(network: Network, *, client_id: str, timeout_ms: float) -> ConnectToBroker:
    """Production's `ConnectToBroker`; `timeout_ms` (controller.socket.timeout.ms) bounds each request."""

    async def connect(broker: LiveBroker) -> BrokerChannel:
        try:
            return ConnectionChannel(
                await Connection.open(
                    network,
                    broker.inter_broker,
                    client_id=client_id,
                    timeout_ms=timeout_ms,
                    broker_id=broker.broker_id,
                    broker_key=broker.broker_key,
                )
            )
        except BrokerRefuses as error:
            raise BrokerRefusesConnections(str(error)) from error
        except (ClientError, RemoteProtocolError) as error:
            raise BrokerUnreachable(str(error)) from error

    return connect
