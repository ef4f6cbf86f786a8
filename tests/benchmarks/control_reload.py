"""How long a real controller takes to read all partitions from a real ZooKeeper and to have them led anew.

Three processes: ZooKeeper; stand-ins for the brokers, which read orders from their sockets, decode them and answer as
brokers do, and keep nothing; and the controller. Every partition has the replicas 1, 2 and 3 and was led by broker 1,
which is gone: so each needs another leader. 2 and 3 live, the controller is on 2.

*reload*: it is elected after that. *failure*: it is in office while broker 1 goes, and has all states in memory.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import trio

from strandline.cli.zookeeper import EmbeddedZooKeeper
from strandline.client.connection import FrameReader, unsent
from strandline.controller.controller import Controller
from strandline.controller.orders.channel import connector
from strandline.controller.store import ClusterStore
from strandline.controller.term.term import Term
from strandline.controller.topics.topic_store import TopicStore
from strandline.protocol import znodes
from strandline.protocol.api import APIS, ApiKey
from strandline.protocol.messages import (
    ApiVersion,
    ApiVersionsResponse,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    Message,
    PartitionError,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from strandline.protocol.native.frame import MAX_FRAME_BYTES, decode_body, encode_head
from strandline.runtime.config.reading import load_broker_config
from strandline.runtime.coordination import MATCH_ANY_VERSION, Create, NodeExists, Operation, SetData
from strandline.runtime.logging import open_logs
from strandline.runtime.loopback import LOOPBACK
from strandline.runtime.network import Address, Transport, TransportClosed
from strandline.runtime.network_socket import SocketNetwork
from strandline.runtime.production import tune_garbage_collection
from strandline.runtime.zookeeper.client import KazooCoordination

GONE, OURS, OTHER = 1, 2, 3
REPLICAS = [GONE, OURS, OTHER]
PARTITIONS_PER_TOPIC = 1000
OPERATIONS_AT_ONCE = 200
SESSION_TIMEOUT_MS = 6000

Row = dict[str, Any]


def measure_reload(partitions: int, runs: int) -> list[Row]:
    """Rows of both cases."""
    with (
        tempfile.TemporaryDirectory(prefix="strandline-reload-") as folder,
        EmbeddedZooKeeper(Path(folder)) as zookeeper,
        stand_ins() as ports,
    ):
        command = [sys.executable, __file__, "controller", folder, zookeeper.address, str(partitions), str(runs)]
        answer = subprocess.run([*command, *map(str, ports)], stdout=subprocess.PIPE, check=True)
    return cast(list[Row], json.loads(answer.stdout))


@contextmanager
def stand_ins() -> Iterator[list[int]]:
    """Their ports."""
    process = subprocess.Popen([sys.executable, __file__, "stand-ins"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())
    finally:
        process.stdin.close()  # it ends by that
        process.wait(10)


# --- the stand-ins -----------------------------------------------------------------------------------------------


async def serve_stand_ins() -> None:
    """Until stdin ends."""
    network = SocketNetwork()
    async with trio.open_nursery() as nursery:
        listeners = [await network.listen(Address(LOOPBACK, 0)) for _ in REPLICAS]
        for listener in listeners:
            nursery.start_soon(accept, listener, nursery)
        print(json.dumps([listener.address.port for listener in listeners]), flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)
        nursery.cancel_scope.cancel()


async def accept(listener: Any, nursery: trio.Nursery) -> None:
    while True:
        nursery.start_soon(serve, await listener.accept())


async def serve(transport: Transport) -> None:
    reader = FrameReader(transport, MAX_FRAME_BYTES)
    try:
        while True:
            while (frame := reader.next_frame()) is None:
                await transport.wait_readable()
                if not reader.receive_nowait():
                    return
            header = frame.header
            answer = answer_to(decode_body(APIS[header.api_key].request, frame.body))
            pending = [memoryview(encode_head(header.api_key, header.version, header.correlation_id, answer))]
            while pending:
                try:
                    pending = unsent(pending, transport.send_nowait(pending))
                except trio.WouldBlock:
                    await transport.wait_writable()
    except TransportClosed:
        pass
    finally:
        transport.close()


def answer_to(request: Message) -> Message:
    if isinstance(request, LeaderAndIsrRequest):
        return LeaderAndIsrResponse(
            0,
            [
                PartitionError(topic.topic_name, state.partition_index, 0)
                for topic in request.topic_states
                for state in topic.partition_states
            ],
        )
    if isinstance(request, UpdateMetadataRequest):
        return UpdateMetadataResponse(0)
    served = (ApiKey.API_VERSIONS, ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA)
    return ApiVersionsResponse(0, [ApiVersion(int(key), *APIS[key].native) for key in served])


# --- the controller ----------------------------------------------------------------------------------------------


class Stages:
    """When the controller was done with what, in seconds since it began, and CPU time then."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.began, self._cpu_began = time.monotonic(), time.process_time()
        self.at: dict[str, float] = {}

    def note(self, name: str) -> None:
        """The first time counts: what comes later belongs to another event."""
        self.at.setdefault(name, time.monotonic() - self.began)

    @property
    def cpu_s(self) -> float:
        return time.process_time() - self._cpu_began

    def noting(self, owner: type, method: str, name: str) -> None:
        """Have the end of each call of a method noted."""
        original = getattr(owner, method)

        async def noted(*arguments: Any, **keywords: Any) -> Any:
            result = await original(*arguments, **keywords)
            self.note(name)
            return result

        setattr(owner, method, noted)


class Reload:
    """The controller's process."""

    def __init__(self, folder: Path, zookeeper: str, partitions: int, ports: Sequence[int]) -> None:
        self._zookeeper = zookeeper
        self._partitions = partitions
        self._ports = dict(zip(REPLICAS, ports, strict=True))
        self._log = open_logs(directory=folder, main_file=folder / "main.log")
        self._stages = Stages()
        self._stages.noting(TopicStore, "topics", "topics read")
        self._stages.noting(ClusterStore, "states", "states read")
        self._stages.noting(ClusterStore, "write_states", "written")

    async def measure(self, runs: int) -> list[Row]:
        rows: list[Row] = []
        ours, gone = self._session(), self._session()
        await ours.start()
        for path in znodes.PERSISTENT_PATHS:
            try:
                await ours.create(path, parents=True)
            except NodeExists:
                pass
        await ours.multi_many(list(self._layout()))
        await self._register(ours, OURS)
        await self._register(ours, OTHER)
        tune_garbage_collection()
        for _ in range(runs):
            await self._lead_all(ours)
            rows.append(await self._reload(ours))
        for _ in range(runs):
            await self._lead_all(ours)
            gone = self._session()
            await gone.start()
            await self._register(gone, GONE)
            rows.append(await self._failure(ours, gone))
        await ours.close()
        return rows

    def _session(self) -> KazooCoordination:
        return KazooCoordination(self._zookeeper, session_timeout_ms=SESSION_TIMEOUT_MS, log=self._log.main)

    async def _register(self, session: KazooCoordination, broker_id: int) -> None:
        endpoint = znodes.BrokerEndpoint("PLAINTEXT", LOOPBACK, self._ports[broker_id])
        path = znodes.BrokerIdZnode.path(broker_id)
        await session.create(path, znodes.BrokerIdZnode(endpoints=(endpoint,)).encode(), ephemeral=True)

    def _topics(self) -> Iterator[tuple[str, int]]:
        for first in range(0, self._partitions, PARTITIONS_PER_TOPIC):
            yield f"reload-{first}", min(PARTITIONS_PER_TOPIC, self._partitions - first)

    def _layout(self) -> Iterator[list[Operation]]:
        for name, count in self._topics():
            topic_id = random.randbytes(16)
            znode = znodes.TopicZnode(topic_id, dict.fromkeys(range(count), REPLICAS))
            path = znodes.TopicZnode.path(name)
            yield [
                Create(path, znode.encode()),
                Create(znodes.TopicIdZnode.path(name, topic_id)),
                Create(f"{path}/partitions"),
            ]
            for first in range(0, count, OPERATIONS_AT_ONCE):
                folders = [f"{path}/partitions/{n}" for n in range(first, min(first + OPERATIONS_AT_ONCE, count))]
                yield [operation for folder in folders for operation in (Create(folder), Create(f"{folder}/state"))]

    async def _lead_all(self, session: KazooCoordination) -> None:
        """By the broker that is gone."""
        state = znodes.PartitionStateZnode(controller_epoch=0, leader=GONE, leader_epoch=7, isr=REPLICAS).encode()
        paths = [znodes.PartitionStateZnode.path(name, n) for name, count in self._topics() for n in range(count)]
        writes = [SetData(path, state, MATCH_ANY_VERSION) for path in paths]
        slices = range(0, len(writes), OPERATIONS_AT_ONCE)
        await session.multi_many([writes[first : first + OPERATIONS_AT_ONCE] for first in slices])

    def _controller(self, session: KazooCoordination) -> Controller:
        given = {"broker.id": str(OURS), "zookeeper.connect": self._zookeeper, "min.insync.replicas": "2"}
        connect = connector(SocketNetwork(), client_id="controller", timeout_ms=30_000)
        config = load_broker_config(given)
        return Controller(
            OURS, config, session, connect, random.Random(1), self._log.controller, self._log.state_change
        )

    async def _reload(self, session: KazooCoordination) -> Row:
        controller = self._controller(session)
        async with trio.open_nursery() as nursery:
            await nursery.start(controller.run)
            while controller.term is None:
                await trio.lowlevel.checkpoint()
            self._stages.begin()
            row = await self._until_all_are_told("reload", controller.term, lambda term: term.active)
            nursery.cancel_scope.cancel()
        await session.delete(znodes.CONTROLLER_PATH)
        return row

    async def _failure(self, session: KazooCoordination, gone: KazooCoordination) -> Row:
        controller = self._controller(session)
        async with trio.open_nursery() as nursery:
            await nursery.start(controller.run)
            while controller.term is None:
                await trio.lowlevel.checkpoint()
            await self._until_all_are_told("start", controller.term, lambda term: term.active)
            await gone.close()
            while GONE in controller.term.context.brokers:
                await trio.lowlevel.checkpoint()
            self._stages.begin()

            def is_queued(term: Term) -> bool:
                return not term.duties.settlement.unannounced and all(
                    state.leader != GONE for state in term.context.states.values()
                )

            row = await self._until_all_are_told("failure", controller.term, is_queued)
            nursery.cancel_scope.cancel()
        await session.delete(znodes.CONTROLLER_PATH)
        return row

    async def _until_all_are_told(self, case: str, term: Term, is_queued: Callable[[Term], bool]) -> Row:
        stages, outbox = self._stages, term.tools.outbox
        while not is_queued(term):
            await trio.sleep(0.001)
        stages.note("queued")
        cpu_s = stages.cpu_s
        mark = outbox.mark()
        while not outbox.told(mark):
            await trio.sleep(0.001)
        stages.note("told")
        assert all(state.leader in (OURS, OTHER) or case == "start" for state in term.context.states.values())
        row: Row = {"case": f"{case} {self._partitions}", "seconds": stages.at["queued"], "cpu": cpu_s}
        names = ("topics read", "states read", "written", "queued", "told")
        return row | {name: stages.at[name] for name in names if name in stages.at} | {"load": os.getloadavg()[0]}


def main() -> None:
    if sys.argv[1] == "stand-ins":
        trio.run(serve_stand_ins)
    else:
        folder, zookeeper, partitions, runs, *ports = sys.argv[2:]
        reload = Reload(Path(folder), zookeeper, int(partitions), [int(port) for port in ports])
        json.dump(trio.run(partial(reload.measure, int(runs))), sys.stdout)


if __name__ == "__main__":
    main()
