"""A consumer whose log is truncated: of what it has fetched nothing is handed out that others have replaced."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from strandline.client.errors import LogTruncated
from unit.client.fake_broker import FakeCluster
from unit.client.test_consumer import T0, consumer

PARTS_AT = 50


@asynccontextmanager
async def reading(policy: str) -> AsyncIterator[tuple[FakeCluster, Any]]:
    """A consumer at the beginning of 200 records, which reads 100 at a time."""
    fake = FakeCluster(2)
    fake.add_topic("t")
    for begin in range(0, 200, 10):
        fake.fill(T0, [b"old %d" % offset for offset in range(begin, begin + 10)])
    async with trio.open_nursery() as nursery:
        await fake.start(nursery)
        settings = {"metadata_max_age_ms": 500, "max_poll_records": 100, "auto_offset_reset": policy}
        async with consumer(fake, **settings) as client:
            await client.assign([T0])
            client.seek(T0, 0)
            yield fake, client
        nursery.cancel_scope.cancel()


async def truncate(fake: FakeCluster) -> None:
    """By an unclean election, of which the consumer has heard when this returns."""
    fake.logs[T0].truncate(PARTS_AT)
    fake.move(T0, 1)
    fake.fill(T0, [b"new %d" % offset for offset in range(PARTS_AT, 100)])
    await trio.sleep(5)


async def looped(client: Any, last: int) -> list[bytes | None]:
    values = []
    async for record in client:
        values.append(record.value)
        if record.offset == last:
            break
    return values


async def polled(client: Any, last: int) -> list[bytes | None]:
    seen: list[Any] = []
    while not seen or seen[-1].offset < last:
        [records] = (await client.poll(timeout_ms=10_000)).values()
        seen += records
    return [record.value for record in seen]


def wanted(start: int) -> list[bytes]:
    return [b"%s %d" % (b"old" if offset < PARTS_AT else b"new", offset) for offset in range(start, 100)]


@pytest.mark.parametrize("goes_on", [polled, looped])
@pytest.mark.parametrize(("last", "goes_on_at"), [(29, 30), (69, 50)])
@pytest.mark.parametrize("policy", ["earliest", "none"])
async def test_a_loop_goes_on_no_later_than_where_the_log_has_other_records(
    autojump_clock: object, last: int, goes_on_at: int, policy: str, goes_on: Any
) -> None:
    """The consumer has read up to 100 by then, of which the loop was handed a part."""
    async with reading(policy) as (fake, client):
        await looped(client, last)
        await truncate(fake)
        if policy == "none" and last >= PARTS_AT:
            for _ in range(2):
                with pytest.raises(LogTruncated, match="at offset 70") as told:
                    await goes_on(client, 99)
            client.seek(T0, told.value.diverging_offset)
        elif policy == "earliest":
            assert await client.position(T0) == goes_on_at, "what a group would commit"
        assert await goes_on(client, 99) == wanted(goes_on_at)


@pytest.mark.parametrize("policy", ["earliest", "none"])
@pytest.mark.parametrize("what", ["poll", "fetch_batches", "poll_columns", "loop"])
async def test_nothing_is_handed_out_that_was_fetched_of_the_other_log(
    autojump_clock: object, policy: str, what: str
) -> None:
    """The program has read up to 70, and more is here."""
    async with reading(policy) as (fake, client):
        await client.poll(timeout_ms=10_000, max_records=70)
        await truncate(fake)

        async def goes_on() -> None:
            if what == "loop":
                await client.__anext__()
            else:
                await getattr(client, what)(timeout_ms=10_000)

        if policy == "none":
            with pytest.raises(LogTruncated, match="seek to 50"):
                await goes_on()
            assert await client.position(T0) == 70, "until the program decides"
            client.seek(T0, PARTS_AT)
        assert await polled(client, 99) == wanted(PARTS_AT)
