"""A question over HTTP to an admin port, for commands: synchronous, bounded in time and size."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable
from typing import Any

from strandline.runtime.network import Address, CannotConnect

MAX_BODY_BYTES = 2**20


def get(
    address: Address,
    path: str,
    timeout_s: float,
    max_body_bytes: int = MAX_BODY_BYTES,
    monotonic: Callable[[], float] = time.monotonic,
) -> tuple[int, bytes]:
    """(status code, body). CannotConnect where nobody answers in HTTP, and wholly, within `timeout_s`, or with more
    than `max_body_bytes`. Only to find the host's addresses, and to connect to each of them, has a time of its own."""
    connection = _Connection(address, timeout_s, monotonic)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read(max_body_bytes + 1)
    except TimeoutError:
        raise CannotConnect(f"http://{address}{path} has not answered within {timeout_s:g} s") from None
    except (OSError, http.client.HTTPException) as error:
        raise CannotConnect(f"nobody answers at http://{address}{path}: {error or type(error).__name__}") from None
    finally:
        connection.close()
    if len(body) > max_body_bytes:
        raise CannotConnect(f"http://{address}{path} answers with more than {max_body_bytes} bytes")
    return response.status, body


def json_in(body: bytes) -> Any:
    """The JSON in an answer. ValueError where it is none, or nested so deeply that no admin port made it."""
    try:
        return json.loads(body)
    except RecursionError:
        raise ValueError("nested too deeply") from None


class _Connection(http.client.HTTPConnection):
    """A timeout of a socket begins anew with each byte that comes: who sends one now and then would be listened to for
    ever."""

    def __init__(self, address: Address, timeout_s: float, monotonic: Callable[[], float]) -> None:
        super().__init__(address.host, address.port, timeout=timeout_s)
        self._monotonic = monotonic
        self._deadline_s = monotonic() + timeout_s

    def connect(self) -> None:
        super().connect()
        assert self.sock is not None
        self.sock = _Socket(self.sock, self._left_s)

    def _left_s(self) -> float:
        """TimeoutError where nothing is left."""
        left_s = self._deadline_s - self._monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s


class _Socket(socket.socket):
    """Takes the place of one that is connected; no step waits for longer than is left of the whole."""

    def __init__(self, connected: socket.socket, left_s: Callable[[], float]) -> None:
        super().__init__(fileno=connected.detach())
        self._left_s = left_s

    def sendall(self, *arguments: Any) -> None:
        self.settimeout(self._left_s())
        super().sendall(*arguments)

    def recv_into(self, *arguments: Any) -> int:
        self.settimeout(self._left_s())
        return super().recv_into(*arguments)
