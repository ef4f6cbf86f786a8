"""A proxy fails as it is told to, and passes everything again afterwards, at the same address."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from support.proxies import HOST, Proxy, Way, Ways
from support.socket_owners import owner_of

PATIENCE_S = 30
"""Only what hangs takes so long."""
SOON_S = 0.2
"""What does not come within this time is taken for what does not come at all."""


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """Before a server that says everything again."""
    server = socket.create_server((HOST, 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                threading.Thread(target=echo, args=(connection,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    with closing(Proxy(server.getsockname)) as made:
        yield made
    server.close()


def echo(connection: socket.socket) -> None:
    with suppress(OSError), connection:
        while data := connection.recv(100):
            connection.sendall(data)


def connected(proxy: Proxy, timeout_s: float = PATIENCE_S) -> socket.socket:
    return socket.create_connection((HOST, proxy.port), timeout_s)


def passes(connection: socket.socket) -> bool:
    connection.sendall(b"said")
    return connection.recv(100) == b"said"


def is_broken(connection: socket.socket) -> bool:
    try:
        return connection.recv(100) == b""
    except ConnectionError:
        return True


def test_everything_passes_both_ways(proxy: Proxy) -> None:
    with connected(proxy) as one, connected(proxy) as other:
        assert passes(one) and passes(other) and passes(one)


def test_silence_keeps_connections_takes_new_ones_and_passes_later_what_was_said(proxy: Proxy) -> None:
    with connected(proxy) as old:
        assert passes(old)
        proxy.silence()
        with connected(proxy) as new:
            for connection in (old, new):
                connection.settimeout(SOON_S)
                with pytest.raises(TimeoutError):
                    passes(connection)
                connection.settimeout(PATIENCE_S)
            proxy.let_through()
            assert old.recv(100) == new.recv(100) == b"said"


def test_who_refuses_breaks_its_connections_and_listens_again_at_the_same_port(proxy: Proxy) -> None:
    port = proxy.port
    for _ in range(3):
        with connected(proxy) as old:
            assert passes(old)
            proxy.refuse()
            assert is_broken(old)
            with pytest.raises(ConnectionRefusedError):
                connected(proxy)
            proxy.let_through()
            with connected(proxy) as new:
                assert passes(new)
    assert proxy.port == port


def test_dropped_connections_break_and_new_ones_pass(proxy: Proxy) -> None:
    with connected(proxy) as old:
        assert passes(old)
        proxy.drop_connections()
        assert is_broken(old)
        with connected(proxy) as new:
            assert passes(new)


def test_nobody_else_is_given_the_port_while_it_refuses(proxy: Proxy) -> None:
    proxy.refuse()
    with pytest.raises(OSError, match="in use"):
        socket.create_server((HOST, proxy.port))


def test_a_full_queue_breaks_connections_and_answers_no_new_ones(proxy: Proxy) -> None:
    with connected(proxy) as old:
        assert passes(old)
        proxy.fill_queue()
        assert is_broken(old)
        with pytest.raises(TimeoutError):
            connected(proxy, SOON_S)
        proxy.let_through()
        with connected(proxy) as new:
            assert passes(new)


def test_a_server_that_is_gone_breaks_the_connections_to_it(proxy: Proxy) -> None:
    with closing(Proxy(lambda: (HOST, 1))) as before_nobody, connected(before_nobody) as connection:
        assert is_broken(connection)


# --- ways --------------------------------------------------------------------------------------------------------


@pytest.fixture
def ways() -> Ways:
    return Way(), Way()


@pytest.fixture
def between(ways: Ways) -> Iterator[tuple[Proxy, socket.socket]]:
    """A proxy, all of whose connections go these ways, and the listener it leads to."""
    with socket.create_server((HOST, 0)) as server, closing(Proxy(server.getsockname, lambda peer: ways)) as made:
        server.settimeout(PATIENCE_S)
        yield made, server
        for way in ways:
            way.heal()


def is_silent(connection: socket.socket) -> bool:
    connection.settimeout(SOON_S)
    try:
        connection.recv(100)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(PATIENCE_S)
    return False


@pytest.mark.parametrize("cut_there", [True, False], ids=["there", "back"])
def test_one_way_is_cut_and_the_other_passes(between: tuple[Proxy, socket.socket], ways: Ways, cut_there: bool) -> None:
    proxy, listener = between
    with connected(proxy) as client, listener.accept()[0] as server:
        server.settimeout(PATIENCE_S)
        ways[0 if cut_there else 1].cut()
        sender, receiver = (client, server) if cut_there else (server, client)
        sender.sendall(b"held")
        receiver.sendall(b"said")
        assert sender.recv(100) == b"said"
        assert is_silent(receiver)
        ways[0 if cut_there else 1].heal()
        assert receiver.recv(100) == b"held"


def test_the_end_of_a_connection_does_not_pass_where_nothing_does(
    between: tuple[Proxy, socket.socket], ways: Ways
) -> None:
    proxy, listener = between
    with connected(proxy) as client, listener.accept()[0] as server:
        server.settimeout(PATIENCE_S)
        ways[0].cut()
        client.shutdown(socket.SHUT_RDWR)
        assert is_silent(server)
        ways[0].heal()
        assert is_broken(server)


def test_a_connection_is_made_where_both_ways_are_open(between: tuple[Proxy, socket.socket], ways: Ways) -> None:
    proxy, listener = between
    for way in ways:
        way.cut()
        with connected(proxy):
            listener.settimeout(SOON_S)
            with pytest.raises(TimeoutError):
                listener.accept()
            listener.settimeout(PATIENCE_S)
            way.heal()
            listener.accept()[0].close()


def test_only_those_that_go_a_way_are_dropped() -> None:
    mine = Way(), Way()
    ways_in_turn = [mine, (Way(), Way())]
    with (
        socket.create_server((HOST, 0)) as server,
        closing(Proxy(server.getsockname, lambda peer: ways_in_turn.pop(0))) as proxy,
        connected(proxy) as one,
        server.accept()[0],
        connected(proxy) as other,
        server.accept()[0] as others_end,
    ):
        proxy.drop_those_on({mine[1]})
        assert is_broken(one)
        other.sendall(b"said")
        assert others_end.recv(100) == b"said"


def test_who_connects_is_known_by_its_process() -> None:
    program = f"import socket, sys; kept = socket.create_connection(('{HOST}', int(sys.argv[1]))); sys.stdin.read()"
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        with subprocess.Popen([sys.executable, "-c", program, str(port)], stdin=subprocess.PIPE) as child:
            connection, peer = server.accept()
            assert owner_of(peer, [os.getpid(), child.pid]) == child.pid
            assert owner_of(peer, [os.getpid()]) is None
            child.communicate()
            connection.close()
    assert owner_of((HOST, 1), [os.getpid()]) is None
