"""A proxy fails as it is told to, and passes everything again afterwards, at the same address."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from support.proxies import HOST, Proxy

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
