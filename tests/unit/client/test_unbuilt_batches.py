"""A producer whose batches cannot be built: for want of memory, say."""

from __future__ import annotations

import pytest
import trio

from strandline.client.errors import DeliveryFailed
from strandline.client.identity import ProducerIdentity
from strandline.protocol.records import BatchBuilder
from unit.client.fake_broker import FakeCluster
from unit.client.test_producer import producer


@pytest.mark.parametrize("identity", [None, ProducerIdentity(7, 0)])
async def test_records_of_which_no_batch_can_be_made_fail_and_others_are_sent(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch, identity: ProducerIdentity | None
) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t", 2)
    build = BatchBuilder.build

    def out_of_memory(builder: BatchBuilder) -> bytearray:
        if builder.records_count == 3:
            raise MemoryError("no room")
        return build(builder)

    monkeypatch.setattr(BatchBuilder, "build", out_of_memory)
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with producer(cluster, identity=identity) as client:
            lost = await client.send_many("t", [(None, b"%d" % i) for i in range(3)], partition=0)
            other = await client.send("t", b"other", partition=1)
            with pytest.raises(DeliveryFailed, match=r"3 records for t-0 .*no room") as told:
                await lost
            assert isinstance(told.value.cause, MemoryError) and not told.value.outcome_unknown
            assert (await other).offset == 0
            after = await client.send("t", b"after", partition=0)
            if identity is None:
                assert (await after).offset == 0
            else:
                with pytest.raises(DeliveryFailed):  # nothing may follow it with the program's numbers
                    await after
            await client.flush()
            told_now = client.metrics()
            assert told_now["buffer-available-bytes"] == told_now["buffer-total-bytes"]
            assert told_now["batches-waiting"] == 0
        nursery.cancel_scope.cancel()
