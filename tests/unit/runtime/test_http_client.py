"""A question over HTTP ends: whoever is asked may be anything that listens there."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from strandline.runtime.http_client import get, json_in
from strandline.runtime.loopback import LOOPBACK
from strandline.runtime.network import Address, CannotConnect

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
LARGE_BYTES = 2**25
"""More than a socket's buffer takes at once."""


@contextmanager
def peer(answer: bytes, more: bytes = b"") -> Iterator[Address]:
    """Says `answer`, then `more` again and again, until who asked has gone."""

    def run() -> None:
        accepted, _ = listener.accept()
        with accepted:
            accepted.recv(4096)
            accepted.sendall(answer)
            try:
                while more:
                    accepted.sendall(more)
            except OSError:
                return

    with socket.create_server((LOOPBACK, 0)) as listener:
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield Address(*listener.getsockname())
        thread.join()


@pytest.mark.parametrize(
    "head",
    [
        f"HTTP/1.1 200 OK\r\nContent-Length: {LARGE_BYTES}\r\n\r\n".encode(),
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: ",
    ],
    ids=["a body", "a body without a length", "a header"],
)
def test_an_answer_in_pieces_is_bounded_in_time_as_a_whole(head: bytes) -> None:
    """Each piece comes 2 s after the one before, by the clock that is given."""
    clock = itertools.count(0, 2)
    late = "/status has not answered within 9 s"
    with peer(head, b"a" * 1000) as address, pytest.raises(CannotConnect, match=late):
        get(address, "/status", 9, LARGE_BYTES, lambda: next(clock))


def test_a_whole_answer_in_time_is_told() -> None:
    with peer(ANSWER) as address:
        assert get(address, "/status", 60) == (200, b"{}")


def test_more_than_the_bound_is_no_answer() -> None:
    with peer(ANSWER) as address, pytest.raises(CannotConnect, match="more than 1 bytes"):
        get(address, "/status", 60, 1)


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"\xff\xfe", b"9" * 5000, b"[" * 900_000], ids=lambda body: repr(body[:6])
)
def test_what_is_no_json_is_one_kind_of_error(body: bytes) -> None:
    with pytest.raises(ValueError):
        json_in(body)
