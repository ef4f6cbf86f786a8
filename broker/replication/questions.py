"""One question to another broker, over a connection of its own: for what is asked too seldom to keep one open."""

from __future__ import annotations

from strandline.broker.replication.replicas import Replicas
from strandline.client.connection import Connection
from strandline.protocol.messages import Message, Request
from strandline.runtime.network import Network


class Questions:
    """This broker's, to the others of its cluster."""

    def __init__(self, replicas: Replicas, network: Network) -> None:
        self._replicas = replicas
        self._network = network

    async def ask(self, broker_id: int, question: Request, timeout_ms: int | None = None) -> Message:
        """Its answer, at the address that the metadata have for brokers, within timeout_ms, else
        `controller.socket.timeout.ms`. ClientError: it is not known to live, another answers there, or nobody in time;
        RemoteProtocolError: the answer makes no sense."""
        config, metadata = self._replicas.config, self._replicas.metadata
        connection = await Connection.open(
            self._network,
            metadata.address_of(broker_id, config.inter_broker_listener_name),
            client_id=f"broker-{self._replicas.broker_id}",
            broker_id=broker_id,
            broker_key=metadata.key_of(broker_id),
            timeout_ms=config.controller_socket_timeout_ms if timeout_ms is None else timeout_ms,
        )
        try:
            answer, _ = await connection.roundtrip(question)
        finally:
            connection.close()
        return answer
