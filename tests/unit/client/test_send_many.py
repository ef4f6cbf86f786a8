"""Many records with one call: pairs, or with headers and timestamps of their own."""

from __future__ import annotations

import pytest
import trio

from strandline.client import DeliveredBatch, FailedBatch, TrioProducer
from strandline.client.errors import RecordTooLarge
from unit.client.fake_broker import FakeCluster


async def test_send_many_settles_once_for_all_its_batches(autojump_clock: object) -> None:
    cluster = FakeCluster(2)
    cluster.add_topic("t", 4)
    settled: list[DeliveredBatch | FailedBatch] = []
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        client = TrioProducer(
            cluster.bootstrap, environment=cluster.environment(), on_batch=settled.append, batch_size=500
        )
        async with client:
            records = [(b"k%d" % (i % 7), b"v%d" % i) for i in range(5000)]
            delivery = await client.send_many("t", records)
            batches = await delivery
        nursery.cancel_scope.cancel()
    assert sum(batch.records_count for batch in batches) == delivery.delivered_records == 5000
    assert settled == batches
    for key in {key for key, _ in records}:
        stored = [record.value for log in cluster.logs.values() for record in log.records() if record.key == key]
        assert stored == [value for other, value in records if other == key]


async def test_send_many_takes_records_with_headers_and_timestamps_of_their_own(autojump_clock: object) -> None:
    cluster = FakeCluster(2)
    cluster.add_topic("t", 4)
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        settings = {"environment": cluster.environment(), "batch_size": 500, "max_request_size": 400}
        async with TrioProducer(cluster.bootstrap, **settings) as client:
            records = [(b"k%d" % (i % 7), b"v%d" % i, [("h", b"%d" % i)] * (i % 3), 1000 + i) for i in range(1000)]
            delivery = await client.send_many("t", records)
            assert sum(batch.records_count for batch in await delivery) == 1000
            large = await client.send_many("t", [(b"k", b"v", [("h", b"x" * 400)], 5), (b"k", b"last", (), 6)])
            with pytest.raises(RecordTooLarge, match="a record of 4"):
                await large
            assert (large.delivered_records, large.failed_records) == (1, 1)
        nursery.cancel_scope.cancel()
    stored = [record for log in cluster.logs.values() for record in log.records()]
    found = sorted((each.timestamp_ms, each.key, each.value, list(each.headers)) for each in stored)
    assert found == [(6, b"k", b"last", []), *sorted((at, key, value, headers) for key, value, headers, at in records)]
