"""/metrics: what Prometheus' own parsers read from it, in which steps it is made, and what a failing source costs."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import pytest
import structlog
import trio
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text
from structlog.testing import LogCapture

from strandline.broker.admin.pages import Answer
from strandline.broker.metrics import exposition
from strandline.broker.metrics.exposition import Exposition
from strandline.broker.metrics.families import SLICE_SAMPLES, Source, counter, counters, gauge, gauges, histograms
from strandline.broker.metrics.sources import FAILURES, MetricSources
from strandline.runtime.network import Address
from strandline.testkit.cluster import MemoryCluster
from support.admin_site import get, read_all, whole_answers

OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
"""What Prometheus 2 asks for, in short."""
TEXT = "text/plain; version=0.0.4; charset=utf-8"
FORMATS = {"": read_text, OPENMETRICS: read_openmetrics}

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


class Stand:
    """An exposition of these sources."""

    def __init__(self, **sources: Source) -> None:
        self.log = LogCapture()
        self.sources = MetricSources(structlog.wrap_logger(None, processors=[self.log]))
        for name, source in sources.items():
            self.sources.add(name, source)
        self.exposition = Exposition(self.sources.collect)

    async def scrape(self, accept: str = "", **headers: str) -> str:
        answer = self.exposition.answer({"accept": accept, **headers})
        return b"".join(await pieces_of(answer)).decode()


async def pieces_of(answer: Answer) -> list[bytes]:
    assert not isinstance(answer.body, bytes)
    return [piece async for piece in answer.body]


def samples(text: str, accept: str) -> Samples:
    """By the parser of the format; all samples but those that count failures."""
    found: Samples = {}
    for family in FORMATS[accept](text):
        for sample in family.samples:
            if not sample.name.startswith(FAILURES):
                key = (sample.name, tuple(sorted(sample.labels.items())))
                assert key not in found
                found[key] = sample.value
    return found


WAITS = [0, *[1] * 5, *[3] * 9]
"""One of 0.7 ms, and two of 40 ms."""


def everything() -> Iterator[Metric]:
    yield gauge("one", "A gauge with a \\ and a\nline end.", 1.5)
    yield counter("kafka_server_brokertopicmetrics_bytesin", "A counter.", 2**53)
    yield from gauges("partition", "In slices.", ("topic", "partition"), ((("t", str(n)), n) for n in range(600)))
    yield from counters("requests", "In slices.", ("id",), ((('"\n\\' + str(n),), n) for n in range(600)))
    yield from histograms(
        "wait_seconds", "Times.", ("api",), [((api,), WAITS, 3, 0.0807) for api in ("Fetch", "Produce")]
    )


@pytest.mark.parametrize("accept", FORMATS)
async def test_the_parsers_of_prometheus_read_everything(accept: str) -> None:
    found = samples(await Stand(all=everything).scrape(accept), accept)
    expected: Samples = {
        ("one", ()): 1.5,
        ("kafka_server_brokertopicmetrics_bytesin_total", ()): 2**53,
        **{("partition", (("partition", str(n)), ("topic", "t"))): n for n in range(600)},
        **{("requests_total", (("id", '"\n\\' + str(n)),)): n for n in range(600)},
    }
    for api in ("Fetch", "Produce"):
        expected |= {
            ("wait_seconds_sum", (("api", api),)): 0.0807,
            ("wait_seconds_count", (("api", api),)): 3,
            ("wait_seconds_bucket", (("api", api), ("le", "0.0005"))): 0,
            ("wait_seconds_bucket", (("api", api), ("le", "0.001"))): 1,
            ("wait_seconds_bucket", (("api", api), ("le", "0.05"))): 3,
            ("wait_seconds_bucket", (("api", api), ("le", "+Inf"))): 3,
        }
    assert {key: found.get(key) for key in expected} == pytest.approx(expected)


@pytest.mark.parametrize("accept", FORMATS)
async def test_a_family_in_slices_has_one_head(accept: str) -> None:
    text = await Stand(all=everything).scrape(accept)
    heads = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(heads) == len(set(heads)) == 6
    assert text.count("# HELP") == 6
    assert text.count("# EOF\n") == (accept == OPENMETRICS)
    assert not accept or text.endswith("# EOF\n")


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", TEXT),
        ("text/html, */*", TEXT),
        ("text/plain;version=0.0.4", TEXT),
        (OPENMETRICS, "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores"),
        ("application/openmetrics-text", "application/openmetrics-text; version=1.0.0; charset=utf-8"),
        (
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=1.0.0;q=0.3",
            "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=allow-utf-8",
        ),
        ("text/plain;version=1.0.0", "text/plain; version=1.0.0; charset=utf-8; escaping=underscores"),
        ("application/openmetrics-text;version=x.y", TEXT),
        ("application/openmetrics-text;version=" + "9" * 5000, TEXT),
        (";;;=,,", TEXT),
    ],
)
async def test_the_format_is_what_the_scraper_asks_for(accept: str, expected: str) -> None:
    stand = Stand(all=everything)
    assert stand.exposition.answer({"accept": accept}).headers["Content-Type"] == expected
    assert "partition" in await stand.scrape(accept)


@given(accept=st.text(st.characters(codec="latin-1", exclude_categories=["Cc"])), encoding=st.text())
def test_no_header_of_a_scraper_is_a_bug(accept: str, encoding: str) -> None:
    answer = Stand().exposition.answer({"accept": accept, "accept-encoding": encoding})
    answer.headers["Content-Type"].encode("latin-1")


async def test_it_is_packed_for_who_can_unpack_it() -> None:
    stand = Stand(all=everything)
    answer = stand.exposition.answer({"accept-encoding": "deflate, gzip;q=1.0"})
    packed = b"".join(await pieces_of(answer))
    plain = await stand.scrape()
    assert answer.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed).decode() == plain
    assert len(packed) < len(plain) / 5
    assert "Content-Encoding" not in stand.exposition.answer({"accept-encoding": "br"}).headers


# --- steps ---------------------------------------------------------------------------------------------------------


class Wide(trio.abc.Instrument):
    """A source of many samples, which counts how many are made in one turn of the loop."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.turns: list[int] = []
        self._made = 0

    def __call__(self) -> Iterator[Metric]:
        yield from gauges("wide", "", ("topic", "partition"), self._rows())

    def _rows(self) -> Iterator[tuple[tuple[str, str], float]]:
        for number in range(self.count):
            self._made += 1
            yield ("topic", str(number)), number

    def before_io_wait(self, timeout: float) -> None:
        """Between two turns."""
        if self._made:
            self.turns.append(self._made)
            self._made = 0


@pytest.mark.parametrize("scrapes", [1, 3])
async def test_the_loop_turns_after_each_slice_however_many_scrape(scrapes: int) -> None:
    wide = Wide(100_000 // scrapes)
    stand = Stand(wide=wide)
    texts: list[str] = []

    async def scrape() -> None:
        texts.append(await stand.scrape())

    trio.lowlevel.add_instrument(wide)
    try:
        async with trio.open_nursery() as nursery:
            for _ in range(scrapes):
                nursery.start_soon(scrape)
    finally:
        trio.lowlevel.remove_instrument(wide)
    assert [text.count("\nwide{") for text in texts] == [wide.count] * scrapes
    assert max(wide.turns) == SLICE_SAMPLES
    assert sum(wide.turns) == wide.count * scrapes


async def test_no_piece_is_larger_than_a_slice_above_the_size_of_one() -> None:
    answer = Stand(wide=Wide(20_000)).exposition.answer({})
    sizes = list(map(len, await pieces_of(answer)))
    assert len(sizes) > 10
    assert exposition.PIECE_BYTES <= min(sizes[:-1]) <= max(sizes) < 2 * exposition.PIECE_BYTES


async def test_who_reads_slowly_keeps_nobody_from_scraping() -> None:
    stand = Stand(wide=Wide(20_000))
    slow = stand.exposition.answer({}).body
    assert not isinstance(slow, bytes)
    async with aclosing(slow):
        first = await anext(slow)
        assert (await stand.scrape()).count("\nwide{") == 20_000
        rest = b"".join([piece async for piece in slow])
    assert (first + rest).count(b"\nwide{") == 20_000


async def test_sources_are_not_asked_before_the_answer_is_read() -> None:
    """A HEAD request costs nothing."""
    asked = []
    Stand(one=lambda: asked.append(1) or []).exposition.answer({"accept-encoding": "gzip"})
    assert asked == []


# --- failures ------------------------------------------------------------------------------------------------------


def raises() -> Iterator[Metric]:
    yield gauge("before", "", 1)
    raise KeyError("a bug")


def cannot_be_written() -> Iterator[Metric]:
    yield gauge("before", "", 1)
    yield gauge("no_number", "", "x")
    yield gauge("after", "", 1)


def is_no_text() -> Iterator[Metric]:
    yield gauge("before", "", 1)
    yield from gauges("no_text", "", ("client",), [(("\ud800",), 1.0)])


@pytest.mark.parametrize("accept", FORMATS)
@pytest.mark.parametrize("bad", [raises, cannot_be_written, is_no_text])
async def test_a_source_that_fails_costs_what_it_has_still_to_tell(bad: Source, accept: str) -> None:
    stand = Stand(bad=bad, good=lambda: [gauge("good", "", 1)])
    text = await stand.scrape(accept)
    assert samples(text, accept) == {("before", ()): 1, ("good", ()): 1}
    failures = {
        sample.labels["source"]: sample.value
        for family in FORMATS[accept](text)
        if family.name == FAILURES
        for sample in family.samples
    }
    assert failures == {"bad": 1, "good": 0}
    [entry] = stand.log.entries
    assert (entry["source"], repr(entry["exc_info"])) == ("bad", entry["error"]), "with the traceback"


# --- a whole broker ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("accept", FORMATS)
async def test_a_broker_is_scraped_by_way_of_its_admin_port(accept: str, autojump_clock: Any) -> None:
    cluster = MemoryCluster(brokers=1, config={"admin.listener": "broker-1:9644"})
    async with cluster.running():
        transport = await cluster.network.node("prometheus").connect(Address("broker-1", 9644))
        headers = f"Connection: close\r\nAccept: {accept}\r\nAccept-Encoding: gzip\r\n\r\n"
        transport.send_nowait([get("/metrics")[:-2] + headers.encode()])
        [(status, found, body)] = whole_answers(await read_all(transport, until_closed=True))
        assert (status, found["content-encoding"]) == (200, "gzip")
        read = samples(gzip.decompress(body).decode(), accept)
        assert read["kafka_server_kafkaserver_brokerstate", ()] == 3
        names = {name for name, _ in read} | {label for _, labels in read for label, _ in labels}
        assert [name for name in names if not re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]*", name)] == []
