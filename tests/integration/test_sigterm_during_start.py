"""A broker process that gets SIGTERM before it serves ends at once and in order, whatever it waits for."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from strandline.cli.process import Daemon

PATIENCE_S = 60.0


def closed_at_once(server: socket.socket) -> None:
    """Take connections, read what comes first, hang up."""
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            connection.recv(4096)


@pytest.mark.parametrize("behaviour", [None, closed_at_once], ids=["nobody listens", "hangs up"])
def test_a_broker_that_waits_for_zookeeper_ends_when_told_to(
    behaviour: Callable[[socket.socket], None] | None, tmp_path: Path
) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if behaviour is not None:
            server.listen()
            threading.Thread(target=behaviour, args=[server], daemon=True).start()
        keys = {
            "broker.id": "1",
            "zookeeper.connect": f"127.0.0.1:{server.getsockname()[1]}",
            "zookeeper.connection.timeout.ms": str(int(PATIENCE_S * 1000)),
            "log.dirs": str(tmp_path / "data"),
            "listeners": "PLAINTEXT://127.0.0.1:0",
        }
        broker = Daemon("broker-1", tmp_path / "broker.log")
        overrides = [word for key, value in keys.items() for word in ("--override", f"{key}={value}")]
        broker.start([sys.executable, "-m", "strandline.cli", "broker", *overrides], folder=tmp_path)
        deadline = time.monotonic() + PATIENCE_S
        while "Connection dropped" not in broker.log_path.read_text() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert broker.stop(timeout_s=PATIENCE_S / 2) == 0, "it neither went on waiting nor called it a failure"
        assert "stopped before it served" in broker.log_path.read_text()
        if behaviour is not None:
            server.shutdown(socket.SHUT_RDWR)
