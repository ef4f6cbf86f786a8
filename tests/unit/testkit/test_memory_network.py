"""The faults that the in-memory network can make, on the virtual clock."""

from __future__ import annotations

import errno

import pytest
import trio
import trio.testing

from strandline.runtime.network import Address, CannotConnect, ConnectionRefused, TransportClosed
from strandline.testkit.network import MemoryNetwork
from strandline.testkit.network.pipes import MemoryTransport
from support.raw_client import RawClient

ADDRESS = Address("b", 9092)


async def connect(network: MemoryNetwork) -> tuple[MemoryTransport, MemoryTransport]:
    """A connection from node a to node b: (a's end, b's end)."""
    listener = await network.node("b").listen(ADDRESS)
    a = await network.node("a").connect(ADDRESS)
    b = await listener.accept()
    return a, b


async def receive(transport: MemoryTransport) -> bytes:
    """What is there next; empty at the end of the stream."""
    buffer = bytearray(100_000)
    while True:
        try:
            return bytes(buffer[: transport.recv_into_nowait(memoryview(buffer))])
        except trio.WouldBlock:
            await transport.wait_readable()


async def test_bytes_take_the_links_latency_each_way(autojump_clock: trio.testing.MockClock) -> None:
    network = MemoryNetwork()
    network.link("a", "b").latency_s = 0.25
    network.link("b", "a").latency_s = 1.0
    a, b = await connect(network)
    assert trio.current_time() == pytest.approx(1.25)  # connecting is a round trip
    since = trio.current_time()
    a.send_nowait([b"ping"])
    assert await receive(b) == b"ping"
    assert trio.current_time() - since == pytest.approx(0.25)
    b.send_nowait([b"pong"])
    assert await receive(a) == b"pong"
    assert trio.current_time() - since == pytest.approx(1.25)


async def test_jitter_never_reorders(autojump_clock: trio.testing.MockClock) -> None:
    network = MemoryNetwork(seed=3)
    network.link("a", "b").jitter_s = 1.0
    a, b = await connect(network)
    for number in range(100):
        a.send_nowait([bytes([number])])
    a.close()
    received = b""
    while piece := await receive(b):
        received += piece
    assert received == bytes(range(100))


async def test_bandwidth_spreads_bytes_over_time(autojump_clock: trio.testing.MockClock) -> None:
    network = MemoryNetwork()
    network.link("a", "b").bytes_per_s = 1000
    a, b = await connect(network)
    since = trio.current_time()
    for _ in range(5):
        a.send_nowait([bytes(1000)])
    received = 0
    while received < 5000:
        received += len(await receive(b))
    assert trio.current_time() - since == pytest.approx(5)


async def test_the_same_seed_gives_the_same_history(autojump_clock: trio.testing.MockClock) -> None:
    async def history(seed: int) -> list[tuple[float, int]]:
        network = MemoryNetwork(seed)
        link = network.link("a", "b")
        link.jitter_s, link.max_piece_bytes = 0.1, 700
        a, b = await connect(network)
        since = trio.current_time()
        for _ in range(20):
            a.send_nowait([bytes(1000)])
        a.close()
        events = []
        while piece := await receive(b):
            events.append((round(trio.current_time() - since, 6), len(piece)))
        return events

    assert await history(1) == await history(1)
    assert await history(1) != await history(2)


async def test_a_one_way_cut_holds_one_direction_until_it_heals(autojump_clock: trio.testing.MockClock) -> None:
    network = MemoryNetwork()
    a, b = await connect(network)
    network.cut("a", "b")
    a.send_nowait([b"held"])
    b.send_nowait([b"passes"])
    assert await receive(a) == b"passes"
    with trio.move_on_after(100) as scope:
        await receive(b)
    assert scope.cancelled_caught
    network.heal("a", "b")
    assert await receive(b) == b"held"


async def test_across_a_cut_nobody_learns_that_the_peer_closed(autojump_clock: trio.testing.MockClock) -> None:
    network = MemoryNetwork()
    a, b = await connect(network)
    network.isolate("a")
    a.close()
    with trio.move_on_after(100) as scope:
        await receive(b)
    assert scope.cancelled_caught  # half-open
    b.send_nowait([b"into the void"])
    network.heal()
    assert await receive(b) == b""
    with pytest.raises(TransportClosed):
        b.send_nowait([b"x"])


@pytest.mark.parametrize(
    ("cut_s", "connected_s"), [(0.5, 1), (2.0, 3), (4, 7), (20, 31), (40, 63), (70, 95)], ids=lambda value: f"{value} s"
)
async def test_connecting_across_a_cut_waits_for_the_next_syn(
    cut_s: float, connected_s: float, autojump_clock: trio.testing.MockClock
) -> None:
    network = MemoryNetwork()
    await network.node("b").listen(ADDRESS)
    network.cut("b", "a")  # even the answer alone is needed
    begun = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(network.node("a").connect, ADDRESS)
        await trio.sleep(cut_s)
        network.heal("a")
    assert trio.current_time() - begun == pytest.approx(connected_s)


@pytest.mark.parametrize(("cut_s", "there_s"), [(0.1, 0.2), (0.5, 0.6), (1.0, 1.4), (10, 12.6)])
async def test_what_was_lost_in_a_cut_comes_when_it_is_repeated(
    cut_s: float, there_s: float, autojump_clock: trio.testing.MockClock
) -> None:
    network = MemoryNetwork()
    a, b = await connect(network)
    network.cut("a", "b")
    begun = trio.current_time()
    a.send_nowait([b"lost"])
    await trio.sleep(cut_s)
    a.send_nowait([b" and found"])
    network.heal()
    assert await receive(b) == b"lost and found"
    assert trio.current_time() - begun == pytest.approx(there_s)


async def test_who_has_a_reach_timeout_ends_its_connection_and_gives_up_connecting(
    autojump_clock: trio.testing.MockClock,
) -> None:
    network = MemoryNetwork()
    network.node("a").reach_timeout_s = 2.0
    a, b = await connect(network)
    network.cut("b", "a")
    with trio.fail_after(2.1), pytest.raises(TransportClosed, match="timed out"):
        await a.wait_readable()
    with trio.fail_after(2.1), pytest.raises(CannotConnect, match="no answer within 2 s"):
        await network.node("a").connect(ADDRESS)
    assert await receive(b) == b"", "what a says still arrives"


async def test_a_held_process_is_not_out_of_reach(autojump_clock: trio.testing.MockClock) -> None:
    network = MemoryNetwork()
    network.node("a").reach_timeout_s = 2.0
    a, b = await connect(network)
    network.hold("b")
    a.send_nowait([b"held"])
    with trio.move_on_after(100):
        await a.wait_readable()
    network.release("b")
    assert await receive(b) == b"held"


async def test_dropped_connections_fail_on_both_sides() -> None:
    network = MemoryNetwork()
    a, b = await connect(network)
    async with trio.open_nursery() as nursery:
        for end in (a, b):

            @nursery.start_soon
            async def wait(end: MemoryTransport = end) -> None:
                with pytest.raises(TransportClosed, match="reset"):
                    await receive(end)

        await trio.testing.wait_all_tasks_blocked()
        assert network.drop_connections("a", "c") == 0
        assert network.drop_connections("a", "b") == 1
    assert network.open_transports == 0


async def test_a_connection_can_break_in_the_middle_of_a_frame() -> None:
    network = MemoryNetwork()
    a, b = await connect(network)
    network.link("a", "b").drop_after_bytes = 7
    a.send_nowait([b"first"])
    a.send_nowait([b"second"])
    client = RawClient(b)
    assert await receive(b) == b"firstse"
    assert await client.is_closed_by_peer()
    with pytest.raises(TransportClosed):
        a.send_nowait([b"x"])


async def test_a_node_that_is_down_refuses_and_its_connections_are_gone() -> None:
    network = MemoryNetwork()
    a, b = await connect(network)
    network.stop("b")
    for end in (a, b):
        with pytest.raises(TransportClosed):
            end.send_nowait([b"x"])
    with pytest.raises(CannotConnect, match="refused"):
        await network.node("a").connect(ADDRESS)
    with pytest.raises(CannotConnect, match="down"):
        await network.node("b").connect(ADDRESS)
    network.start("b")
    with pytest.raises(CannotConnect, match="refused"):  # up, but nothing listens yet
        await network.node("a").connect(ADDRESS)
    await network.node("b").listen(ADDRESS)
    await network.node("a").connect(ADDRESS)


async def test_a_window_bounds_what_is_in_flight() -> None:
    network = MemoryNetwork(window_bytes=1000)
    a, b = await connect(network)
    assert a.send_nowait([bytes(700), bytes(700)]) == 1000
    with pytest.raises(trio.WouldBlock):
        a.send_nowait([b"x"])
    buffer = bytearray(400)
    b.recv_into_nowait(memoryview(buffer))
    assert a.send_nowait([bytes(700)]) == 400


async def test_a_node_without_descriptors_makes_no_connection_and_keeps_who_waits() -> None:
    network = MemoryNetwork()
    listener = await network.node("b").listen(ADDRESS)
    await network.node("a").connect(ADDRESS)
    network.node("b").lacks_descriptors = True
    with pytest.raises(OSError, match="Too many open files"):
        await listener.accept()
    with pytest.raises(CannotConnect, match="Too many open files"):
        await network.node("b").connect(ADDRESS)
    network.node("b").lacks_descriptors = False
    await listener.accept()


async def test_accepting_can_fail_for_lack_of_descriptors_and_loses_no_connection() -> None:
    network = MemoryNetwork()
    listener = await network.node("b").listen(ADDRESS)
    listener.accept_errors.append(OSError(errno.EMFILE, "Too many open files"))
    await network.node("a").connect(ADDRESS)
    with pytest.raises(OSError, match="Too many"):
        await listener.accept()
    await listener.accept()


async def test_all_nodes_share_loopback_but_not_their_own_hosts() -> None:
    network = MemoryNetwork()
    first, second = network.node("b"), network.node("c")
    on_loopback = await first.listen(Address("127.0.0.1", 0))
    await second.connect(Address("localhost", on_loopback.address.port))
    await first.listen(Address("0.0.0.0", 9092))
    await second.listen(Address("0.0.0.0", 9092))  # the same port on another host
    transport = await network.node("a").connect(Address("c", 9092))
    assert transport.other is not None
    assert transport.other.node == "c"


async def test_who_refuses_keeps_its_open_connections() -> None:
    network = MemoryNetwork()
    a, b = await connect(network)
    network.refuse("b")
    with pytest.raises(ConnectionRefused):
        await network.node("a").connect(ADDRESS)
    a.send_nowait([b"still there"])
    assert await receive(b) == b"still there"
    network.take_connections("b")
    await network.node("a").connect(ADDRESS)
