"""Ask the embedded cluster's brokers how they see the cluster: short Metadata round trips, nothing kept open; and wait
until they agree."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import trio

from strandline.broker.upkeep.loading import LOADING
from strandline.cli.process import Daemon, ProcessFailed
from strandline.client.connection import Connection
from strandline.client.errors import ClientError
from strandline.protocol.errors import RemoteProtocolError
from strandline.protocol.messages import MetadataRequest, MetadataResponse
from strandline.runtime.network import Address
from strandline.runtime.network_socket import SocketNetwork

_CLIENT_ID = "strandline-cluster"
_READY_POLL_S = 0.05


def ask_brokers(
    addresses: Mapping[int, Address], topics: Sequence[str] | None = (), timeout_ms: int = 1000
) -> dict[int, MetadataResponse]:
    """Broker id → its Metadata answer; those who do not answer in time are missing. `topics`: names, () for none,
    None for all. Runs an event loop of its own: call it from plain code or from a worker thread."""
    return trio.run(ask_from_loop, addresses, topics, timeout_ms)


def wait_ready(brokers: Mapping[int, tuple[Daemon, Address]], timeout_s: float) -> None:
    """Until each of these brokers is registered and answers Metadata with all of them in it. ProcessFailed when one
    ends meanwhile or after `timeout_s`, in which none got on with loading its logs: after a kill every batch is checked
    that may not have reached the disk, and who was stopped half-way would begin at the first one again."""
    deadline, loaded = time.monotonic() + timeout_s, [""]
    while True:
        answers = ask_brokers({broker_id: address for broker_id, (_, address) in brokers.items()})
        if all_ready(answers, list(brokers)):
            return
        for daemon, _ in brokers.values():
            daemon.require_alive()
        if time.monotonic() >= deadline:
            said = {broker_id: daemon.last_log_line() for broker_id, (daemon, _) in brokers.items()}
            before, loaded = loaded, [line for line in said.values() if LOADING in line]
            if not loaded or loaded == before:
                silent = next((broker_id for broker_id in brokers if broker_id not in answers), next(iter(brokers)))
                raise ProcessFailed(
                    f"broker {silent} is not ready after {timeout_s:.0f} s: {said[silent]} "
                    f"(log: {brokers[silent][0].log_path})"
                )
            deadline += timeout_s
        time.sleep(_READY_POLL_S)


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
