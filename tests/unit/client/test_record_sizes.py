"""Producers and brokers agree on how large a record may be."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from strandline.client import TrioProducer
from strandline.client.errors import RecordTooLarge
from strandline.client.record_sizes import batch_bytes
from strandline.client.settings import ProducerSettings
from strandline.protocol.records import BatchBuilder
from strandline.protocol.records.batch import InvalidBatch
from strandline.protocol.records.validation import validate_produced
from strandline.protocol.types import TopicPartition
from strandline.runtime.config.reading import load_broker_config
from unit.client.fake_broker import FakeCluster

CLIENT_BYTES = ProducerSettings(bootstrap_servers="b:1").max_request_size
BROKER_BYTES = load_broker_config({"broker.id": "1", "zookeeper.connect": "z:1"}).message_max_bytes


def built(record: tuple[bytes | None, bytes | None], headers: list[tuple[str, bytes | None]]) -> bytearray:
    builder = BatchBuilder()
    assert builder.append(1_700_000_000_000, *record, headers)
    return builder.build()


sizes = st.one_of(st.none(), st.sampled_from([0, 1, 62, 63, 64, 8190, 8191, 8192, 1_048_575]), st.integers(0, 300))
contents = sizes.map(lambda size: None if size is None else b"x" * size)


@given(contents, contents, st.lists(st.tuples(st.text(max_size=5), contents), max_size=3))
def test_a_records_size_is_that_of_its_batch(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    size = len(built((key, value), headers))
    assert batch_bytes((key, value), headers) == batch_bytes((key, value, headers, 5), ()) == size


async def test_whatever_passes_the_producer_passes_a_broker_by_default(autojump_clock: object) -> None:
    """And hardly less would: the defaults of Kafka differ by 12 bytes."""
    assert BROKER_BYTES - CLIENT_BYTES == 12
    most = CLIENT_BYTES - batch_bytes((b"", b""), ()) - 6  # varints of 4, 3 and 1 bytes, where there was 1 for each
    cluster = FakeCluster()
    cluster.add_topic("t")
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with TrioProducer(cluster.bootstrap, environment=cluster.environment()) as producer:
            while batch_bytes((b"", b"x" * (most + 1)), ()) <= CLIENT_BYTES:
                most += 1
            await producer.send("t", b"x" * most, key=b"")
            with pytest.raises(RecordTooLarge) as refused:
                await producer.send("t", b"x" * (most + 1), key=b"")
        nursery.cancel_scope.cancel()
    [batch] = cluster.logs[TopicPartition("t", 0)].batches
    assert len(batch) == CLIENT_BYTES
    validate_produced(memoryview(bytearray(batch)), max_batch_bytes=BROKER_BYTES)
    for part in ("max_request_size (1048576)", "max.message.bytes", "message.max.bytes", f"{CLIENT_BYTES + 1} bytes"):
        assert part in str(refused.value)
    with pytest.raises(InvalidBatch) as too_large:
        validate_produced(memoryview(built((None, b"x" * BROKER_BYTES), [])), max_batch_bytes=BROKER_BYTES)
    for part in ("max.message.bytes is 1048588", "message.max.bytes", "max.request.size"):
        assert part in str(too_large.value)
