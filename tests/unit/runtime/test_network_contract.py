"""What every network must do: the same tests over real sockets and over the in-memory network."""

from __future__ import annotations

import contextlib
import os
import random
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from strandline.runtime.network import (
    Address,
    CannotConnect,
    CannotListen,
    ConnectionRefused,
    Listener,
    Network,
    Transport,
    TransportClosed,
)
from strandline.runtime.network_socket import IOV_MAX, SocketNetwork
from strandline.testkit.network import MemoryNetwork, MemoryNode

ANY_PORT = Address("127.0.0.1", 0)


@pytest.fixture(params=["sockets", "memory"])
def nodes(request: pytest.FixtureRequest) -> tuple[Network, Network]:
    """(client, server)"""
    if request.param == "sockets":
        return SocketNetwork(), SocketNetwork()
    network = MemoryNetwork(seed=7)
    return network.node("client"), network.node("server")


@asynccontextmanager
async def connected(nodes: tuple[Network, Network]) -> AsyncIterator[tuple[Transport, Transport]]:
    """(the client's end, the server's end)"""
    listener = await nodes[1].listen(ANY_PORT)
    client = await nodes[0].connect(listener.address)
    server = await listener.accept()
    try:
        yield client, server
    finally:
        client.close()
        server.close()
        listener.close()


async def send_all(transport: Transport, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[transport.send_nowait([view]) :]
        except trio.WouldBlock:
            await transport.wait_writable()


async def receive_exactly(transport: Transport, length: int) -> bytes:
    """That many bytes, fewer at the end of the stream."""
    buffer = bytearray(length)
    have = 0
    while have < length:
        try:
            received = transport.recv_into_nowait(memoryview(buffer)[have:])
        except trio.WouldBlock:
            await transport.wait_readable()
            continue
        if not received:
            break
        have += received
    return bytes(buffer[:have])


async def fill(transport: Transport) -> int:
    """Send until the peer's silence pushes back. Returns the bytes sent."""
    sent = 0
    with pytest.raises(trio.WouldBlock):
        while True:
            sent += transport.send_nowait([bytes(100_000)])
            await trio.lowlevel.checkpoint()
    return sent


class FileWithDescriptor:
    """A file as send_file_nowait takes it: with a descriptor."""

    truncations = 0

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._descriptor = os.open(path, os.O_RDONLY)

    def fileno(self) -> int:
        return self._descriptor

    def pread(self, length: int, position: int) -> bytes:
        return os.pread(self._descriptor, length, position)

    def close(self) -> None:
        os.close(self._descriptor)


class FileWithoutDescriptor(FileWithDescriptor):
    """As an in-memory disk has them."""

    fileno = None


@pytest.fixture(params=[FileWithDescriptor, FileWithoutDescriptor], ids=["descriptor", "no descriptor"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    path = tmp_path / "segment"
    path.write_bytes(random.Random(1).randbytes(1_000_000))
    opened = request.param(path)
    yield opened
    opened.close()


async def test_bytes_arrive_in_order_both_ways(nodes: tuple[Network, Network]) -> None:
    request, response = random.Random(2).randbytes(2_000_000), random.Random(3).randbytes(1_500_000)
    async with connected(nodes) as (client, server), trio.open_nursery() as nursery:
        nursery.start_soon(send_all, client, request)
        nursery.start_soon(send_all, server, response)
        assert await receive_exactly(server, len(request)) == request
        assert await receive_exactly(client, len(response)) == response


async def test_receiving_would_block_while_nothing_is_there(nodes: tuple[Network, Network]) -> None:
    async with connected(nodes) as (client, server):
        with pytest.raises(trio.WouldBlock):
            server.recv_into_nowait(memoryview(bytearray(10)))
        client.send_nowait([b"now"])
        await server.wait_readable()
        buffer = bytearray(10)
        assert server.recv_into_nowait(memoryview(buffer)) == 3
        assert buffer[:3] == b"now"


async def test_one_send_takes_many_buffers_of_every_kind(nodes: tuple[Network, Network]) -> None:
    async with connected(nodes) as (client, server):
        assert client.send_nowait([b"by", bytearray(b"te"), memoryview(b"xxs!")[2:]], more=False) == 6
        assert await receive_exactly(server, 6) == b"bytes!"


async def test_one_send_takes_more_buffers_than_a_system_call(nodes: tuple[Network, Network]) -> None:
    buffers = [bytes([number % 256]) * 3 for number in range(2 * IOV_MAX + 500)]
    async with connected(nodes) as (client, server):
        sent = client.send_nowait(buffers)
        assert sent > 0
        assert await receive_exactly(server, sent) == b"".join(buffers)[:sent]


async def test_a_head_that_announces_more_is_followed_by_it(nodes: tuple[Network, Network], file: Any) -> None:
    async with connected(nodes) as (client, server):
        assert client.send_nowait([b"head"], more=True) == 4
        assert client.send_file_nowait(file, 10, 50) == 50
        assert await receive_exactly(server, 54) == b"head" + file.pread(50, 10)


async def test_a_file_is_sent_in_pieces_until_its_end(nodes: tuple[Network, Network], file: Any) -> None:
    async with connected(nodes) as (client, server), trio.open_nursery() as nursery:

        @nursery.start_soon
        async def send() -> None:
            position = 100
            while True:
                try:
                    sent = client.send_file_nowait(file, position, 2_000_000)
                except trio.WouldBlock:
                    await client.wait_writable()
                    continue
                if not sent:
                    break
                position += sent
            client.close()

        assert await receive_exactly(server, 2_000_000) == file.pread(2_000_000, 100)


async def test_a_file_that_ended_before_the_position_sends_nothing(nodes: tuple[Network, Network], file: Any) -> None:
    async with connected(nodes) as (client, _):
        assert client.send_file_nowait(file, 5_000_000, 100) == 0


async def test_the_end_of_the_stream_follows_the_last_byte(nodes: tuple[Network, Network]) -> None:
    async with connected(nodes) as (client, server):
        client.send_nowait([b"last"])
        client.close()
        assert await receive_exactly(server, 10) == b"last"
        assert server.recv_into_nowait(memoryview(bytearray(1))) == 0


async def test_a_peer_that_does_not_read_pushes_back_until_it_does(nodes: tuple[Network, Network]) -> None:
    async with connected(nodes) as (client, server), trio.open_nursery() as nursery:
        sent = await fill(client)
        nursery.start_soon(client.wait_writable)
        assert await receive_exactly(server, sent) == bytes(sent)


async def test_the_peers_end_shows_while_bytes_of_it_are_unread(nodes: tuple[Network, Network]) -> None:
    async with connected(nodes) as (client, server):
        await send_all(client, b"abc")
        await server.wait_readable()
        assert not server.has_ended() and not client.has_ended()
        client.close()
        with trio.fail_after(5):
            while not server.has_ended():
                await trio.sleep(0.001)
        assert client.has_ended() and server.recv_into_nowait(memoryview(bytearray(9))) == 3


async def test_closing_wakes_this_sides_waiters(nodes: tuple[Network, Network]) -> None:
    woken = []
    async with connected(nodes) as (client, _), trio.open_nursery() as nursery:

        async def wait_to_read() -> None:
            with pytest.raises(TransportClosed):
                await client.wait_readable()
            woken.append("read")

        async def wait_to_write() -> None:
            with pytest.raises(TransportClosed):
                while True:  # the system may take some more once what is under way has reached the peer's buffer
                    await fill(client)
                    await client.wait_writable()
            woken.append("write")

        nursery.start_soon(wait_to_read)
        nursery.start_soon(wait_to_write)
        await trio.testing.wait_all_tasks_blocked()
        client.close()
    assert sorted(woken) == ["read", "write"]


async def test_the_peers_close_wakes_a_reader(nodes: tuple[Network, Network]) -> None:
    async with connected(nodes) as (client, server), trio.open_nursery() as nursery:
        nursery.start_soon(receive_exactly, server, 1)
        await trio.testing.wait_all_tasks_blocked()
        client.close()


async def test_nothing_works_after_closing(nodes: tuple[Network, Network], file: Any) -> None:
    async with connected(nodes) as (client, _):
        client.close()
        client.close()
        with pytest.raises(TransportClosed):
            client.recv_into_nowait(memoryview(bytearray(1)))
        with pytest.raises(TransportClosed):
            client.send_nowait([b"x"])
        with pytest.raises(TransportClosed):
            client.send_file_nowait(file, 0, 10)
        with pytest.raises(TransportClosed):
            await client.wait_readable()
        with pytest.raises(TransportClosed):
            await client.wait_writable()


async def test_sending_to_a_closed_peer_fails_in_the_end(nodes: tuple[Network, Network]) -> None:
    async with connected(nodes) as (client, server):
        server.close()
        with pytest.raises(TransportClosed, match="failed"):
            while True:
                await client.wait_writable()
                client.send_nowait([b"x"])


async def test_both_ends_know_their_peer(nodes: tuple[Network, Network]) -> None:
    listener = await nodes[1].listen(ANY_PORT)
    client = await nodes[0].connect(listener.address)
    server = await listener.accept()
    assert listener.address.port != 0
    assert client.peer == listener.address
    assert server.peer.port not in (0, listener.address.port)
    for end in (client, server):
        end.close()
    listener.close()


async def test_connections_made_before_accept_wait_in_order(nodes: tuple[Network, Network]) -> None:
    listener = await nodes[1].listen(ANY_PORT)
    clients = [await nodes[0].connect(listener.address) for _ in range(3)]
    for number, client in enumerate(clients):
        client.send_nowait([bytes([number])])
    servers = [await listener.accept() for _ in range(3)]
    assert [await receive_exactly(server, 1) for server in servers] == [b"\0", b"\1", b"\2"]
    for end in (*clients, *servers):
        end.close()
    listener.close()


async def test_connecting_where_nobody_listens_is_refused_and_names_the_address(nodes: tuple[Network, Network]) -> None:
    listener = await nodes[1].listen(ANY_PORT)
    address = listener.address
    listener.close()
    with pytest.raises(ConnectionRefused, match=str(address.port)):
        await nodes[0].connect(address)


async def test_a_full_queue_refuses_nobody(nodes: tuple[Network, Network]) -> None:
    """Its machine says nothing: whoever connects cannot tell it from one that is away."""
    listener = await nodes[1].listen(ANY_PORT, 1)
    ends: list[Transport] = []
    with trio.move_on_after(0.5):
        for _ in range(4):  # Linux keeps one or two more than it was told
            ends.append(await nodes[0].connect(listener.address))
    assert 1 <= len(ends) < 4
    for end in ends:
        end.close()
    listener.close()


async def test_an_address_that_is_taken_cannot_be_bound(nodes: tuple[Network, Network]) -> None:
    listener = await nodes[1].listen(ANY_PORT)
    with pytest.raises(CannotListen, match=str(listener.address.port)):
        await nodes[1].listen(listener.address)
    listener.close()
    again = await nodes[1].listen(listener.address)
    again.close()


async def test_closing_a_listener_wakes_who_accepts(nodes: tuple[Network, Network]) -> None:
    listener = await nodes[1].listen(ANY_PORT)

    async def accept(listener: Listener) -> None:
        with pytest.raises(TransportClosed):
            await listener.accept()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(accept, listener)
        await trio.testing.wait_all_tasks_blocked()
        listener.close()


async def test_waiting_can_be_cancelled_and_the_connection_goes_on(nodes: tuple[Network, Network]) -> None:
    async with connected(nodes) as (client, server):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.wait_readable)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        client.send_nowait([b"still here"])
        assert await receive_exactly(server, 10) == b"still here"


async def test_a_listener_on_every_interface_is_reached_over_loopback(nodes: tuple[Network, Network]) -> None:
    for host in ("0.0.0.0", ""):
        listener = await nodes[1].listen(Address(host, 0))
        target = "server" if isinstance(nodes[0], MemoryNode) else "127.0.0.1"
        client = await nodes[0].connect(Address(target, listener.address.port))
        server = await listener.accept()
        for end in (client, server):
            end.close()
        listener.close()


async def test_sockets_never_delay_small_packets() -> None:
    async with connected((SocketNetwork(), SocketNetwork())) as ends:
        for end in ends:
            assert end._socket.getsockopt(6, 1) == 1  # type: ignore[attr-defined]  # IPPROTO_TCP, TCP_NODELAY


async def test_with_a_reach_timeout_the_kernel_ends_a_silent_connection_that_was_opened_here() -> None:
    async with connected((SocketNetwork(reach_timeout_s=2.0), SocketNetwork(reach_timeout_s=2.0))) as (client, server):
        assert options_of(client) == (2000, 1, 1)
        assert options_of(server)[0] == 0, "how long a client does not read is its own affair"


def options_of(end: Any) -> tuple[int, ...]:
    names = (socket.TCP_USER_TIMEOUT, socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL)
    return tuple(end._socket.getsockopt(socket.IPPROTO_TCP, name) for name in names)


async def test_with_a_reach_timeout_nobody_waits_for_a_machine_that_does_not_answer() -> None:
    """Where its queue of connections is full, a kernel drops the first packet of another one."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = Address(*full.getsockname())
        with contextlib.ExitStack() as waiting:
            for _ in range(4):
                one = waiting.enter_context(socket.socket())
                one.setblocking(False)
                one.connect_ex(address)
            with pytest.raises(CannotConnect, match=r"no answer within 0\.2 s"), trio.fail_after(60):
                await SocketNetwork(reach_timeout_s=0.2).connect(address)


async def test_connecting_by_a_bad_name_is_refused_in_one_line() -> None:
    with pytest.raises(CannotConnect, match="cannot connect to "):
        await SocketNetwork().connect(Address("no such host name.invalid", 9092))
