"""The pages of the admin port as an ASGI application: from a path to an answer, whatever server reads the request.

GET and HEAD of a path in the table are answered; a page is a function of the request's headers. What a request has as
its body means nothing here: it is read to its end, so that the connection can serve another one. The answer may come
in pieces; whoever reads them slowly holds no more than one, and they end when the peer leaves.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, NamedTuple

import trio

Message = dict[str, Any]
"""ASGI calls the keys by name; `type` says which there are."""
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

JSON = {"Content-Type": "application/json"}
METHODS = ("GET", "HEAD")
_ORIGIN = re.compile(r"https?://[^/?]*", re.IGNORECASE)
"""What an absolute target has before its path (RFC 9112, 3.2.2)."""


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str] = {}
    body: bytes | AsyncGenerator[bytes, None] = b""
    """Whole, or in pieces of which each is made when the one before was sent."""


Page = Callable[[Mapping[str, str]], Awaitable[Answer]]
"""Takes the request's headers, their names in small letters. What is long is done in steps."""


def json_answer(status: int, content: object, headers: Mapping[str, str] = {}) -> Answer:
    return Answer(status, {**JSON, **headers}, json_body(content))


def json_body(content: object) -> bytes:
    return json.dumps(content, indent=1).encode() + b"\n"


class Pages:
    """The application. `table`: path → page."""

    def __init__(self, table: Mapping[str, Page]) -> None:
        self._table = table

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """One request, after ASGI 3: the server sees to it that there are no other scopes than `http`."""
        while (message := await receive()).get("more_body"):
            pass
        if message["type"] == "http.disconnect":
            return
        answer = await self._answer(scope)
        headers = {"Cache-Control": "no-store", **answer.headers}
        if isinstance(answer.body, bytes):
            if answer.status != 204:
                headers["Content-Length"] = str(len(answer.body))
            await send(_start(answer.status, headers))
            await send({"type": "http.response.body", "body": answer.body})
            return
        async with aclosing(answer.body) as pieces:
            await send(_start(answer.status, headers))
            if scope["method"] != "HEAD":
                await _send_pieces(pieces, receive, send)
            await send({"type": "http.response.body"})

    async def _answer(self, scope: Mapping[str, Any]) -> Answer:
        if not scope["http_version"].startswith("1."):
            return json_answer(505, {"error": "only HTTP/1.1 is spoken here"}, {"Connection": "close"})
        target = scope["raw_path"].decode("ascii", "replace")
        page = self._table.get(target if target.startswith("/") else _ORIGIN.sub("", target, count=1))
        if page is None:
            return json_answer(404, {"error": f"there is {', '.join(self._table)}"})
        if scope["method"] not in METHODS:
            return json_answer(405, {"error": "only GET and HEAD are answered"}, {"Allow": ", ".join(METHODS)})
        return await page({name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]})


async def _send_pieces(pieces: AsyncGenerator[bytes, None], receive: Receive, send: Send) -> None:
    """Until they end, or the peer leaves: a server drops what is sent to it then, and says so only here."""

    async def leave_with_peer() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(leave_with_peer)
        async for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        nursery.cancel_scope.cancel()


def _start(status: int, headers: Mapping[str, str]) -> Message:
    return {
        "type": "http.response.start",
        "status": status,
        "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()],
    }
