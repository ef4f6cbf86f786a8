"""`strandline ready`: the exit code that health checks rest on."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest


class AdminPort(HTTPServer):
    """Answers every path alike."""

    answer: tuple[int, bytes] = (200, b'{"ready": true, "waits": []}')


class Handler(BaseHTTPRequestHandler):
    server: AdminPort

    def do_GET(self) -> None:
        status, body = self.server.answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return None


@pytest.fixture
def port() -> Iterator[AdminPort]:
    server = AdminPort(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_ready_broker_is_exit_code_0(shell: Any, port: AdminPort) -> None:
    ran = shell("ready", "--admin", f"127.0.0.1:{port.server_port}")
    assert (ran.code, ran.out) == (0, "ready\n")


def test_a_broker_that_waits_is_exit_code_1_with_its_reasons(shell: Any, port: AdminPort) -> None:
    port.answer = (503, json.dumps({"ready": False, "waits": ["not registered in ZooKeeper"]}).encode())
    ran = shell("ready", "--admin", f"127.0.0.1:{port.server_port}")
    assert (ran.code, ran.out) == (1, "not ready: not registered in ZooKeeper\n")
    ran = shell("ready", "--admin", f"127.0.0.1:{port.server_port}", "--output", "json")
    assert json.loads(ran.out) == {
        "_command": "ready",
        "_version": 1,
        "ready": False,
        "waits": ["not registered in ZooKeeper"],
    }


def test_the_address_comes_from_the_brokers_own_variable_and_every_interface_is_loopback(
    shell: Any, port: AdminPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_ADMIN_LISTENER", f"0.0.0.0:{port.server_port}")
    assert shell("ready").code == 0


def test_without_variables_the_defaults_of_the_image_say_whom_to_ask(
    shell: Any, port: AdminPort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = tmp_path / "image.properties"
    defaults.write_text(f"admin.listener=127.0.0.1:{port.server_port}\n")
    monkeypatch.setenv("STRANDLINE_DEFAULTS", str(defaults))
    monkeypatch.setenv("STRANDLINE_ADMIN_LISTENER", "")
    assert shell("ready").code == 0
    monkeypatch.setenv("KAFKA_ADMIN_LISTENER", "127.0.0.1:1")
    assert "http://127.0.0.1:1/ready" in shell("ready").err


def test_of_a_switched_off_admin_port_nobody_can_tell(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = shell("ready", "--admin", "")
    assert ran.code == 1 and "switched off" in ran.err
    monkeypatch.delenv("STRANDLINE_DEFAULTS", raising=False)
    monkeypatch.delenv("STRANDLINE_ADMIN_LISTENER", raising=False)
    ran = shell("ready")
    assert ran.code == 2 and "--admin HOST:PORT" in ran.err


def test_nobody_there_is_one_line_with_the_remedy(shell: Any, port: AdminPort) -> None:
    ran = shell("ready", "--admin", "127.0.0.1:1")
    assert ran.code == 1
    assert "nobody answers at http://127.0.0.1:1/ready" in ran.err and "admin.listener" in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize("body", [b"<html>", b"[" * 900_000], ids=["a page", "deep JSON"])
def test_a_server_of_another_kind_is_told_apart(shell: Any, port: AdminPort, body: bytes) -> None:
    port.answer = (200, body)
    ran = shell("ready", "--admin", f"127.0.0.1:{port.server_port}")
    assert ran.code == 1 and "is no broker's admin port" in ran.err


@pytest.mark.parametrize("text", ["9644", "127.0.0.1:0", "host:port", "127.0.0.1:99999"])
def test_an_address_that_is_none_is_a_usage_error(shell: Any, text: str) -> None:
    ran = shell("ready", "--admin", text)
    assert ran.code == 2 and "--admin" in ran.err and "PLAINTEXT" not in ran.err
