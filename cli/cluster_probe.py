"""Ask the embedded cluster's brokers how they see the cluster: short Metadata round trips, nothing kept open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import trio

from strandline.client.connection import Connection
from strandline.client.errors import ClientError
from strandline.protocol.errors import RemoteProtocolError
from strandline.protocol.messages import MetadataRequest, MetadataResponse
from strandline.runtime.network import Address
from strandline.runtime.network_socket import SocketNetwork

_CLIENT_ID = "strandline-cluster"


def ask_brokers(
    addresses: Mapping[int, Address], topics: Sequence[str] | None = (), timeout_ms: int = 1000
) -> dict[int, MetadataResponse]:
    """Broker id → its Metadata answer; those who do not answer in time are missing. `topics`: names, () for none,
    None for all. Runs an event loop of its own: call it from plain code or from a worker thread."""
    return trio.run(ask_from_loop, addresses, topics, timeout_ms)


def all_ready(answers: Mapping[int, MetadataResponse], broker_ids: Sequence[int]) -> bool:
    """Does every one of these brokers answer, know all the others and know a controller among the living?"""
    wanted = set(broker_ids)
    return wanted <= answers.keys() and all(
        wanted <= {broker.node_id for broker in answers[broker_id].brokers}
        and answers[broker_id].controller_id in {broker.node_id for broker in answers[broker_id].brokers}
        for broker_id in broker_ids
    )


async def ask_from_loop(
    addresses: Mapping[int, Address], topics: Sequence[str] | None = (), timeout_ms: int = 1000
) -> dict[int, MetadataResponse]:
    """`ask_brokers` for callers that are in an event loop."""
    request = MetadataRequest(topics=None if topics is None else list(topics))
    answers: dict[int, MetadataResponse] = {}

    async def ask(broker_id: int, address: Address) -> None:
        try:
            connection = await Connection.open(
                SocketNetwork(), address, client_id=_CLIENT_ID, timeout_ms=timeout_ms, connect_timeout_ms=timeout_ms
            )
            try:
                answer = await connection.call(request, MetadataResponse)
            finally:
                connection.close()
        except (ClientError, RemoteProtocolError):
            return
        answers[broker_id] = answer

    async with trio.open_nursery() as nursery:
        for broker_id, address in addresses.items():
            nursery.start_soon(ask, broker_id, address)
    return answers
