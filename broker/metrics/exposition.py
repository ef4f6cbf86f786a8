"""`/metrics`: families as the text that Prometheus reads, piece by piece.

The format is what the scraper asks for (`Accept`): Prometheus' text 0.0.4, or OpenMetrics; prometheus_client writes
both. A scrape goes slice by slice (`families`), and between two the loop turns. However many scrape, it makes one such
step at a time. Of an answer a slice is kept, and the piece that is being sent, packed by gzip where the scraper takes
it (Prometheus does). What a source has to find before it can tell, scrapes at the same time share (`of_groups`).
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import aclosing, closing
from functools import partial
from typing import cast

import trio
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder, gzip_accepted
from prometheus_client.openmetrics.exposition import ALLOWUTF8

from strandline.broker.admin.pages import Answer

PIECE_BYTES = 32 * 2**10
"""Of text; a piece is sent as soon as there is so much."""
GZIP_LEVEL = 1
"""These texts shrink to a twentieth at any level; the lowest takes a quarter of the time of zlib's default."""
_GZIP_WINDOW_BITS = 31
"""zlib: the widest window, with the head and the end of a gzip file."""

Collect = Callable[[], Generator[Metric, None, None]]
"""Everything there is, lazily. Takes by `throw` that a family could not be written, and goes on with another one."""
Encoder = Callable[..., bytes]
"""Takes what has `collect()`."""


class Exposition:
    """See the module."""

    def __init__(self, collect: Collect) -> None:
        self._collect = collect
        self._turn = trio.Lock()
        """Fair: scrapes at the same time take turns."""

    def answer(self, headers: Mapping[str, str]) -> Answer:
        """headers: of the request, their names in small letters."""
        encoder, content_type = _encoder(headers.get("accept", ""))
        answer_headers = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"}
        pieces = self._pieces(encoder)
        if gzip_accepted(headers.get("accept-encoding", "")):
            answer_headers["Content-Encoding"] = "gzip"
            pieces = self._packed(pieces)
        return Answer(200, answer_headers, pieces)

    async def _pieces(self, encoder: Encoder) -> AsyncGenerator[bytes, None]:
        end = encoder(_Given())
        piece = bytearray()
        with closing(self._collect()) as metrics:
            slices = _written(metrics, encoder, end)
            while True:
                async with self._turn:
                    text = next(slices, None)
                if text is None:
                    break
                piece += text
                if len(piece) >= PIECE_BYTES:
                    yield bytes(piece)
                    piece.clear()
        yield bytes(piece + end)

    async def _packed(self, pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        packer = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW_BITS)
        async with aclosing(pieces):
            async for piece in pieces:
                if packed := packer.compress(piece):
                    yield packed
        yield packer.flush()


class _Given:
    """What prometheus_client takes for a registry."""

    def __init__(self, *metrics: Metric) -> None:
        self._metrics = metrics

    def collect(self) -> tuple[Metric, ...]:
        return self._metrics


def _encoder(accept: str) -> tuple[Encoder, str]:
    try:
        chosen, content_type = choose_encoder(accept)
    except (TypeError, ValueError):  # a version that is no number
        return choose_encoder("")
    if content_type.startswith("application/openmetrics-text"):
        # Our names are the same by any rule for names of other alphabets; by this one they are not looked at letter by
        # letter, which is a third of the work.
        return partial(cast(Encoder, chosen), escaping=ALLOWUTF8), content_type
    return chosen, content_type


def _written(metrics: Generator[Metric, None, None], encoder: Encoder, end: bytes) -> Generator[bytes, None, None]:
    """The text of each slice; the lines that tell of a family only before its first one."""
    last = ""
    metric = next(metrics, None)
    while metric is not None:
        try:
            text = encoder(_Given(metric)).removesuffix(end)
        except Exception as error:  # a value that is no number, a label that is no text
            metric = _thrown(metrics, error)
            continue
        if metric.name == last:
            text = _without_head(text)
        last = metric.name
        yield text
        metric = next(metrics, None)


def _thrown(metrics: Generator[Metric, None, None], error: Exception) -> Metric | None:
    try:
        return metrics.throw(error)
    except StopIteration:
        return None


def _without_head(text: bytes) -> bytes:
    start = 0
    while text.startswith(b"# ", start):
        start = text.index(b"\n", start) + 1
    return text[start:]
