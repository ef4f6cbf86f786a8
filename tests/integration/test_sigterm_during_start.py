"""A broker process that gets SIGTERM before it serves ends at once and in order, whatever it waits for."""

from __future__ import annotations

import socket
import sys
import threading
from pathlib import Path

import pytest

from strandline.cli.process import Daemon

PATIENCE_S = 60.0


def hang_up(server: socket.socket, stays: bool, was_asked: threading.Event) -> None:
    """Take connections, read what comes first, hang up. stays: else nobody listens any more after the first one."""
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        if not stays:
            server.close()
        with connection:
            connection.recv(4096)
        was_asked.set()


@pytest.mark.parametrize("stays", [False, True], ids=["nobody listens", "hangs up"])
def test_a_broker_that_waits_for_zookeeper_ends_when_told_to(stays: bool, tmp_path: Path) -> None:
    was_asked = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        threading.Thread(target=hang_up, args=[server, stays, was_asked], daemon=True).start()
        keys = {
            "broker.id": "1",
            "zookeeper.connect": f"127.0.0.1:{port}",
            "zookeeper.connection.timeout.ms": str(int(PATIENCE_S * 1000)),
            "log.dirs": str(tmp_path / "data"),
            "listeners": "PLAINTEXT://127.0.0.1:0",
        }
        broker = Daemon("broker-1", tmp_path / "broker.log")
        overrides = [word for key, value in keys.items() for word in ("--override", f"{key}={value}")]
        broker.start([sys.executable, "-m", "strandline.cli", "broker", *overrides], folder=tmp_path)
        assert was_asked.wait(PATIENCE_S), broker.log_path.read_text()
        assert broker.stop(timeout_s=PATIENCE_S / 2) == 0, "it neither went on waiting nor called it a failure"
        assert "stopped before it served" in broker.log_path.read_text()
        if stays:
            server.shutdown(socket.SHUT_RDWR)
