"""Free ports for servers that keep their address over a restart."""

from __future__ import annotations

import socket

import pytest

from strandline.runtime import loopback
from strandline.runtime.loopback import LOOPBACK, NoFreePort, free_port, zookeeper_folder


@pytest.fixture
def listening():
    with socket.create_server((LOOPBACK, 0)) as server:
        yield server.getsockname()[1]


def test_a_preferred_port_is_taken_when_free() -> None:
    # Somebody else on the machine may take one in between, not all.
    assert any(free_port(port) == port for port in [free_port() for _ in range(5)])


def test_a_preferred_port_in_use_gives_another_one(listening: int) -> None:
    assert free_port(listening) != listening
    assert free_port(65_536) < 65_536, "there is none"


def test_ports_that_others_were_promised_are_left_out() -> None:
    port = free_port()
    assert free_port(port, taken=frozenset({port})) != port


def test_ports_lie_below_the_range_of_outgoing_connections() -> None:
    lowest = loopback._lowest_ephemeral_port()
    assert all(free_port() < max(lowest, loopback._LOWEST_PORT + 1000) for _ in range(20))


def test_when_all_are_taken_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback, "_is_free", lambda _port: False)
    with pytest.raises(NoFreePort, match="no free port between"):
        free_port()


def test_nobody_there_is_no_zookeeper() -> None:
    assert zookeeper_folder(free_port()) is None


def test_one_that_takes_the_question_and_is_silent_is_no_zookeeper(listening: int) -> None:
    assert zookeeper_folder(listening, timeout_s=0.01) is None
