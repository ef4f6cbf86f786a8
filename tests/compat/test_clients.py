"""Everybody else's clients produce and consume, with every codec that each has; every record is compared.

Each client writes a topic of its own: for each codec records with and without keys, headers (empty ones and null) and
null values, a part of the codecs with an idempotent producer. Our own client, which speaks the native dialect, reads it
all; what it read is what all the others have to read, out of all the topics.

`STRANDLINE_COMPAT_RECORDS` is how many records each client writes, `STRANDLINE_COMPAT_BOOTSTRAP` the address of another
cluster to try them on: a Kafka shows whether a failure is a client's own.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence

import pytest

from compat.other_clients import CLIENTS, CODECS, OURS, RECORDS, REPEATING_KEYS, Client, Read, Sent, without_topic
from strandline.cli.cluster import EmbeddedCluster
from strandline.client.sync import Admin

BOOTSTRAP = os.environ.get("STRANDLINE_COMPAT_BOOTSTRAP")
REFERENCE = CLIENTS["confluent-kafka"] if BOOTSTRAP else OURS
"""Who says what is in the topics."""
OTHERS = [client for client in CLIENTS.values() if client is not OURS or not BOOTSTRAP]
READERS = [client for client in OTHERS if client.tells_all]
READERS_OF_ONE = [client for client in OTHERS if not client.tells_all]
IDEMPOTENT_CODECS = ("none", "lz4", "zstd")
FIRST_TIMESTAMP_MS = 1_700_000_000_000
PARTITIONS = 3
_FILLER = b"every record is compared, whatever it went through; " * 3
_ANY_BYTES = bytes(sorted(set(range(256)) - set(b"\t\r\n")))  # those end keys and lines in what is compared as lines


def made_records(client: Client, codec: str, count: int) -> list[Sent]:
    """No two are equal, so that each is found again. A quarter is alike in what kcat is told once for a run."""
    if client.numbers_records:
        prefix = CODECS.index(codec)
        keys = [b"%d" % (number % REPEATING_KEYS) if prefix % 2 else None for number in range(count)]
        return [Sent(key, b"%d.%d" % (prefix, number), (), None) for number, key in enumerate(keys)]
    records = []
    for place in range(count):
        name = f"{client.name}-{codec}-{place}".encode()
        quarter = place * 4 // count
        is_keyed, has_headers = quarter < 2, quarter % 2 == 0
        filler = _ANY_BYTES if client.takes_any_bytes and place % 50 == 7 else _FILLER[: place % 150]
        headers: list[tuple[str, bytes | None]] = [("trace", b"7"), ("empty", b"")]
        if client.takes_null_headers:
            headers.append(("null", None))
        is_null = is_keyed and place % 10 == 4
        key = (name if is_null else b"user-%d" % (place % 97)) if is_keyed else None
        records.append(
            Sent(
                key,
                None if is_null else name + b" " + filler,
                tuple(headers) if has_headers else (),
                FIRST_TIMESTAMP_MS + place if client.takes_timestamps else None,
            )
        )
    return records


class Topics:
    """What each client has written, and what is in its topic: made when it is first asked for."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._run = uuid.uuid4().hex[:6]  # another cluster has the topics of the runs before
        self._log: dict[str, list[Read]] = {}
        self._sent: dict[str, list[Sent]] = {}
        self._acks: dict[str, list[tuple[int, int]] | None] = {}
        self._failed: set[str] = set()

    def name(self, client: Client) -> str:
        return f"from-{client.name}-{self._run}"

    def sent(self, client: Client) -> list[Sent]:
        assert client.name not in self._failed, f"{client.name} could not produce"
        if client.name not in self._sent:
            self._failed.add(client.name)  # a second try would write into the first one's topic
            self._write(client)
            self._failed.discard(client.name)
        return self._sent[client.name]

    def acks(self, client: Client) -> list[tuple[int, int]] | None:
        """(partition, offset) of each record of `sent`, where the client tells it."""
        self.sent(client)
        return self._acks[client.name]

    def log(self, client: Client) -> list[Read]:
        """As our own client reads it, in order of partitions and offsets."""
        count = len(self.sent(client))
        if client.name not in self._log:
            self._log[client.name] = sorted(
                REFERENCE.consume(self.bootstrap, [self.name(client)], count), key=lambda each: each[:3]
            )
        return self._log[client.name]

    def _write(self, client: Client) -> None:
        sent: list[Sent] = []
        acks: list[tuple[int, int]] = []
        for codec in client.codecs:
            records = made_records(client, codec, RECORDS // len(client.codecs))
            is_idempotent = client.is_idempotent and codec in IDEMPOTENT_CODECS
            acks += client.produce(self.bootstrap, self.name(client), records, codec, is_idempotent) or []
            sent += records
        self._sent[client.name], self._acks[client.name] = sent, acks if client.tells_acks else None


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topics]:
    """On three brokers of ours."""
    if BOOTSTRAP:
        yield Topics(BOOTSTRAP)
        return
    # Nobody else joins the groups of those that read in groups only.
    cluster = EmbeddedCluster(
        tmp_path_factory.mktemp("cluster"), 3, properties={"group.initial.rebalance.delay.ms": "0"}
    )
    try:
        cluster.start()
        topics = Topics(cluster.bootstrap_servers)
        with Admin(cluster.bootstrap_servers) as admin:
            for client in OTHERS:
                admin.create_topic(topics.name(client), PARTITIONS, 3, {"retention.ms": "-1"})
        yield topics
    finally:
        cluster.stop(timeout_s=10)


@pytest.mark.parametrize("client", OTHERS, ids=lambda client: client.name)
def test_what_a_client_produces_is_in_the_log_once_and_in_order(topics: Topics, client: Client) -> None:
    sent, log = topics.sent(client), topics.log(client)
    place_of = {(each.key, each.value, each.headers, each.timestamp): place for place, each in enumerate(sent)}
    places = []
    for read in log:
        timestamp = read.timestamp if client.takes_timestamps else None
        place = place_of.get((read.key, read.value, read.headers, timestamp))
        assert place is not None, f"nobody sent {read}"
        places.append(place)
    assert sorted(places) == list(range(len(sent))), "not each record is there once"
    acks = topics.acks(client)
    if acks is not None:
        assert [acks[place] for place in places] == [(read.partition, read.offset) for read in log]
    for partition in range(PARTITIONS):
        of_one = [place for place, read in zip(places, log, strict=True) if read.partition == partition]
        assert of_one == sorted(of_one), f"partition {partition} is not in the order of sending"


@pytest.mark.parametrize("client", READERS, ids=lambda client: client.name)
def test_a_client_reads_what_all_the_others_produced(topics: Topics, client: Client) -> None:
    expected = [read for writer in OTHERS for read in topics.log(writer)]
    found = client.consume(topics.bootstrap, [topics.name(writer) for writer in OTHERS], len(expected))
    assert len(found) == len(expected)
    if not client.tells_topics:
        expected = without_topic(expected)
    assert_same(sorted(expected, key=_order), sorted(found, key=_order))


@pytest.mark.parametrize("client", READERS_OF_ONE, ids=lambda client: client.name)
def test_a_client_that_takes_one_topic_reads_what_it_produced(topics: Topics, client: Client) -> None:
    expected = [read._replace(timestamp=-1) for read in topics.log(client)]  # which it does not tell
    found = client.consume(topics.bootstrap, [topics.name(client)], len(expected))
    assert_same(expected, sorted(found, key=_order))


def assert_same(expected: Sequence[Read], found: Sequence[Read]) -> None:
    """Shows the first that differ, and not a hundred thousand others."""
    for wanted, read in zip(expected, found, strict=True):
        assert read == wanted


def _order(read: Read) -> tuple[str, int, int, int, bytes, bytes]:
    return (*read[:4], read.key or b"", read.value or b"")
