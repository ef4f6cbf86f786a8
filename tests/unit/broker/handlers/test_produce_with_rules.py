"""Produce to topics with rules of their own: what is refused, what is stored, and what may change meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import pytest
import trio
from trio.testing import MockClock

from strandline.broker.replication import converter
from strandline.protocol.errors import ErrorCode
from strandline.protocol.records import MAX_AT_FAULT, Record, build_batch, decode_records, read_header, scan
from strandline.runtime.environment import NO_WORKER, WORKER_DIED, ComputingFailed
from strandline.testkit.environment import EPOCH_MS
from support.replica_site import T0, T1, Hand, ReplicaSite, produce_hand

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
OTHER_ID = b"\x07" * 16
NO_KEY = "no key, which a compacted topic needs"
VALUE = b"v" * 300


def good(codec: str, count: int = 5) -> bytes:
    return build_batch([(EPOCH_MS + place, b"k%d" % place, VALUE) for place in range(count)], codec)


def keyless(codec: str) -> bytes:
    return build_batch([(EPOCH_MS, key, VALUE) for key in (b"k", None, b"k", None)], codec)


def old(codec: str) -> bytes:
    """One record in the middle is an hour old."""
    times = (EPOCH_MS, EPOCH_MS - 3_600_000, EPOCH_MS)
    return build_batch([(time, b"k", VALUE) for time in times], codec)


def early(codec: str) -> bytes:
    """One record in the middle is an hour ahead."""
    times = (EPOCH_MS, EPOCH_MS + 3_600_000, EPOCH_MS)
    return build_batch([(time, b"k", VALUE) for time in times], codec)


def timeless(codec: str) -> bytes:
    return build_batch([(-1, b"k", VALUE)] * 3, codec)


def nonsense(codec: str) -> bytes:
    """Its records cannot be decoded; header and CRC are right."""
    from crc32c import crc32c

    data = bytearray(good(codec))
    data[70:90] = b"\xff" * 20
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return bytes(data)


def bomb(codec: str) -> bytes:
    return build_batch([(EPOCH_MS, b"k", bytes(900_000))], codec)


KINDS: dict[str, Callable[[str], bytes]] = {
    function.__name__: function for function in (good, keyless, old, early, timeless, nonsense, bomb)
}
BAD, LATE, BIG = ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP, ErrorCode.MESSAGE_TOO_LARGE

# topic's configuration, then what is answered per kind: (uncompressed, compressed). What is not named is taken.
TABLE: dict[str, tuple[Mapping[str, str], Mapping[str, tuple[int, int]]]] = {
    "ordinary": ({}, {"nonsense": (BAD, 0)}),
    "compacted": (
        {"cleanup.policy": "compact"},
        {"keyless": (BAD, BAD), "nonsense": (BAD, BAD), "bomb": (0, BIG)},
    ),
    "bounded before": (
        {"message.timestamp.before.max.ms": "60000"},
        {"old": (LATE, LATE), "nonsense": (BAD, BAD), "bomb": (0, BIG)},
    ),
    "bounded after": (
        {"message.timestamp.after.max.ms": "60000"},
        {"early": (LATE, LATE), "nonsense": (BAD, BAD), "bomb": (0, BIG)},
    ),
    "bounded by the older key": (
        {"message.timestamp.difference.max.ms": "60000"},
        {"old": (LATE, LATE), "early": (LATE, LATE), "nonsense": (BAD, BAD), "bomb": (0, BIG)},
    ),
    "uncompressed": ({"compression.type": "uncompressed"}, {"nonsense": (BAD, BAD), "bomb": (0, BIG)}),
    "stamped": ({"message.timestamp.type": "LogAppendTime"}, {"nonsense": (BAD, 0)}),
    "stamped, whatever the bounds": (
        {"message.timestamp.type": "LogAppendTime", "message.timestamp.before.max.ms": "1"},
        {"nonsense": (BAD, 0)},
    ),
}


def site_with(topic: Mapping[str, str], **broker: str) -> ReplicaSite:
    return ReplicaSite(topic=topic, config={"max.decompressed.message.bytes": "500000", **broker})


def stored(site: ReplicaSite, tp=T0) -> bytes:
    log = site.partition(tp).log
    region = log.read(0, 2**30, log.log_end_offset)
    return region.file.pread(region.length, region.position) if region is not None else b""


async def answered(site: ReplicaSite, hand: Hand) -> Hand:
    site.burst(hand)
    await site.run_submitted()
    return hand


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("topic", "refused"), TABLE.values(), ids=TABLE)
async def test_what_a_topic_asks_of_each_kind_of_batch(
    topic: Mapping[str, str], refused: Mapping[str, tuple[int, int]], codec: str, autojump_clock: MockClock
) -> None:
    site = site_with(topic)
    await site.lead(replicas=(1,), isr=(1,))
    for name, make in KINDS.items():
        data = make(codec)
        before = stored(site)
        hand = await answered(site, produce_hand((T0, data), acks=1))
        outcome = hand.outcomes[0]
        expected = refused.get(name, (0, 0))[codec != "none"]
        assert outcome.error_code == expected, f"{name}: {outcome.error_message}"
        if expected:
            assert outcome.error_message and stored(site) == before, name
            continue
        (header,) = (header for _, header in scan(stored(site)[len(before) :]))
        sent = read_header(data)
        wanted = "none" if "compression.type" in topic else codec
        assert (header.compression_type, header.base_offset) == (wanted, outcome.base_offset), name
        assert header.records_count == sent.records_count
        if "message.timestamp.type" in topic:
            assert (header.timestamp_type, header.max_timestamp_ms) == (1, outcome.log_append_time_ms), name
            assert outcome.log_append_time_ms == EPOCH_MS
        else:
            assert outcome.log_append_time_ms == -1
            if wanted == codec:  # stored as sent, but for offset and epoch before the CRC
                assert stored(site)[len(before) + 16 :] == data[16:], name


@pytest.mark.parametrize("codec", ["none", "gzip"])
async def test_a_producer_is_told_which_records_are_at_fault(codec: str, autojump_clock: MockClock) -> None:
    site = site_with({"cleanup.policy": "compact"})
    await site.lead(replicas=(1,), isr=(1,))
    for make, at_fault in ((keyless, [1, 3]), (nonsense, [])):
        hand = await answered(site, produce_hand((T0, make(codec)), acks=1))
        outcome = hand.outcomes[0]
        assert [each.batch_index for each in outcome.record_errors] == at_fault
        assert {each.batch_index_error_message for each in outcome.record_errors} <= {NO_KEY}


@pytest.mark.parametrize("codec", ["none", "gzip"])
async def test_a_request_is_told_of_so_many_records_in_all(codec: str, autojump_clock: MockClock) -> None:
    site = site_with({"cleanup.policy": "compact"})
    await site.lead(replicas=(1,), isr=(1,))
    data = build_batch([(EPOCH_MS, None, b"")] * (MAX_AT_FAULT - 5), codec)
    hand = await answered(site, produce_hand(*[(T0, data)] * 3, acks=1))
    assert [len(outcome.record_errors) for outcome in hand.outcomes] == [MAX_AT_FAULT - 5, 5, 0]
    assert [outcome.error_code for outcome in hand.outcomes] == [BAD] * 3


@pytest.mark.parametrize("target", ["uncompressed", *CODECS[1:]])
@pytest.mark.parametrize("codec", CODECS)
async def test_every_codec_becomes_the_topics(target: str, codec: str, autojump_clock: MockClock) -> None:
    site = site_with({"compression.type": target})
    await site.lead(replicas=(1,), isr=(1,))
    for place in range(3):
        hand = await answered(site, produce_hand((T0, good(codec)), acks=-1))
        assert hand.outcomes[0].base_offset == 5 * place
    assert {h.compression_type for _, h in scan(stored(site))} == {"none" if target == "uncompressed" else target}
    expected = [record[1:] for record in decode_records(good(codec))] * 3
    assert [record[1:] for record in decode_records(stored(site))] == expected
    assert [record.offset for record in decode_records(stored(site))] == list(range(15))
    assert site.environment.computing.calls == (0 if target == ("uncompressed" if codec == "none" else codec) else 3)  # type: ignore[attr-defined]


async def test_a_batch_that_has_grown_above_the_limit_is_refused(autojump_clock: MockClock) -> None:
    site = site_with({"compression.type": "uncompressed", "max.message.bytes": "1000"})
    await site.lead(replicas=(1,), isr=(1,))
    hand = await answered(site, produce_hand((T0, good("zstd", 10)), acks=1))
    assert hand.outcomes[0].error_code == ErrorCode.MESSAGE_TOO_LARGE and not stored(site)


async def test_one_refused_partition_harms_no_other_and_small_batches_are_one_job(autojump_clock: MockClock) -> None:
    site = site_with({"cleanup.policy": "compact", "compression.type": "zstd"})
    await site.order(site.state(T0, replicas=(1,), isr=(1,)), site.state(T1, replicas=(1,), isr=(1,)))
    hand = await answered(site, produce_hand((T0, good("gzip") + keyless("gzip")), (T1, good("lz4") * 3), acks=1))
    assert [(o.index, o.error_code) for o in hand.outcomes] == [(0, ErrorCode.INVALID_RECORD), (1, 0)]
    assert not stored(site, T0) and len(decode_records(stored(site, T1))) == 15
    assert site.environment.computing.calls == 1  # type: ignore[attr-defined]


async def test_partitions_that_need_no_worker_do_not_wait_for_it(autojump_clock: MockClock) -> None:
    site = site_with({"compression.type": "zstd"})
    await site.order(site.state(T0, replicas=(1,), isr=(1,)), site.state(T1, replicas=(1,), isr=(1,)))
    hand = produce_hand((T0, good("gzip")), (T1, good("zstd")), acks=1)
    site.burst(hand)
    assert stored(site, T1) and not stored(site, T0) and not hand.is_answered
    await site.run_submitted()
    assert [o.error_code for o in hand.outcomes] == [0, 0]


async def test_the_same_partition_twice_in_a_request_keeps_its_order(autojump_clock: MockClock) -> None:
    site = site_with({"compression.type": "zstd"})
    await site.lead(replicas=(1,), isr=(1,))
    hand = await answered(site, produce_hand((T0, good("gzip", 2)), (T0, good("zstd", 3)), acks=1))
    assert [o.base_offset for o in hand.outcomes] == [0, 2]


async def test_acks_all_waits_for_the_followers_after_the_worker(autojump_clock: MockClock) -> None:
    site = site_with({"compression.type": "zstd", "message.timestamp.type": "LogAppendTime"})
    await site.lead()
    hand = await answered(site, produce_hand((T0, good("gzip"))))
    assert not hand.is_answered
    site.follow(2, 5)
    site.follow(3, 5)
    assert (hand.outcomes[0].error_code, hand.outcomes[0].log_append_time_ms) == (0, EPOCH_MS)


async def test_a_request_that_is_refused_without_an_answer_closes_the_connection(autojump_clock: MockClock) -> None:
    site = site_with({"cleanup.policy": "compact"})
    await site.lead()
    hand = await answered(site, produce_hand((T0, keyless("gzip")), acks=0))
    assert hand.connection.closed and "INVALID_RECORD" in hand.connection.why_closed


# --- LogAppendTime -----------------------------------------------------------------------------------------------


async def test_all_batches_of_a_burst_have_one_time_and_the_next_burst_a_later_one(autojump_clock: MockClock) -> None:
    site = site_with({"message.timestamp.type": "LogAppendTime"})
    await site.lead(replicas=(1,), isr=(1,))
    hands = [produce_hand((T0, good(codec)), acks=1) for codec in CODECS]
    site.burst(*hands)
    await trio.sleep(7)
    later = site.produce((T0, good("none")), acks=-1)
    assert [hand.outcomes[0].log_append_time_ms for hand in [*hands, later]] == [EPOCH_MS] * 5 + [EPOCH_MS + 7000]
    records: list[Record] = decode_records(stored(site))
    assert {record.timestamp_type for record in records} == {1}
    assert [record.timestamp_ms for record in records] == [EPOCH_MS] * 25 + [EPOCH_MS + 7000] * 5


async def test_converted_batches_have_the_time_of_their_append(autojump_clock: MockClock) -> None:
    site = site_with({"message.timestamp.type": "LogAppendTime", "compression.type": "lz4"})
    await site.lead(replicas=(1,), isr=(1,))
    hand = produce_hand((T0, good("none")), acks=1)
    site.burst(hand)
    await trio.sleep(3)
    inline = site.produce((T0, good("lz4")), acks=1)
    await site.run_submitted()
    assert [h.outcomes[0].base_offset for h in (inline, hand)] == [0, 5]
    assert [h.outcomes[0].log_append_time_ms for h in (inline, hand)] == [EPOCH_MS + 3000] * 2


@pytest.mark.parametrize("acks", [1, -1])
async def test_an_idempotent_batch_is_stamped_once_and_its_repetition_answered_with_that_time(
    acks: int, autojump_clock: MockClock
) -> None:
    site = site_with({"message.timestamp.type": "LogAppendTime", "compression.type": "zstd"})
    await site.lead(replicas=(1,), isr=(1,))
    data = build_batch([(EPOCH_MS, b"k", VALUE)] * 3, "gzip", (7, 0, 0))
    first = await answered(site, produce_hand((T0, data), acks=acks))
    await trio.sleep(9)
    again = await answered(site, produce_hand((T0, data), acks=acks))
    for hand in (first, again):
        outcome = hand.outcomes[0]
        assert (outcome.error_code, outcome.base_offset, outcome.log_append_time_ms) == (0, 0, EPOCH_MS)
    header = read_header(stored(site))
    assert (header.producer_id, header.base_sequence, header.max_timestamp_ms) == (7, 0, EPOCH_MS)
    assert len(decode_records(stored(site))) == 3


async def test_what_all_requests_hold_at_once_is_bounded_and_a_giant_goes_alone(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each may come back as 500 KB: two at a time have room, and the one of three batches has none beside it."""
    monkeypatch.setattr(converter, "CONVERTED_BYTES", 1_000_000)
    site = site_with({"compression.type": "uncompressed", "max.message.bytes": "500000"})
    await site.lead(replicas=(1,), isr=(1,))
    budget = site.data.converter.budget
    site.slow_computing(1.0)
    hands = [produce_hand((T0, good("gzip") * count), acks=1) for count in (1, 1, 1, 3, 1)]
    site.burst(*hands)
    answered_at: list[float] = []
    used: list[int] = []

    async def handle(work: Callable[[], Awaitable[None]]) -> None:
        await work()
        answered_at.append(trio.current_time())
        used.append(budget.used_bytes)

    before = trio.current_time()
    async with trio.open_nursery() as nursery:
        for work in site.submitted:
            nursery.start_soon(handle, work)
            await trio.testing.wait_all_tasks_blocked()
        assert budget.used_bytes == 1_000_000
    assert [round(at - before) for at in answered_at] == [1, 1, 2, 3, 4]
    assert budget.used_bytes == 0 and max(used) <= 1_500_000
    assert all(hand.outcomes[0].error_code == 0 for hand in hands)


async def test_who_goes_while_it_waits_for_room_leaves_it_to_others(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(converter, "CONVERTED_BYTES", 1000)
    site = site_with({"compression.type": "uncompressed"})
    await site.lead(replicas=(1,), isr=(1,))
    site.slow_computing(1.0)
    site.burst(produce_hand((T0, good("gzip")), acks=1), produce_hand((T0, good("gzip")), acks=1))
    with trio.move_on_after(0.5):
        async with trio.open_nursery() as nursery:
            for work in site.submitted:
                nursery.start_soon(work)
    site.submitted.clear()
    assert site.data.converter.budget.used_bytes == 0
    hand = await answered(site, produce_hand((T0, good("gzip")), acks=1))
    assert hand.outcomes[0].error_code == 0


# --- meanwhile ---------------------------------------------------------------------------------------------------


async def waiting(site: ReplicaSite, **fields: object) -> Hand:
    """A request whose batch is with the worker."""
    hand = produce_hand((T0, good("gzip")), **fields)
    site.burst(hand)
    assert not hand.is_answered and len(site.submitted) == 1
    return hand


async def test_others_run_between_the_appends_of_what_came_back(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.broker.handlers.produce.APPEND_BYTES", 1)
    site = site_with({"compression.type": "zstd"})
    await site.order(site.state(T0, replicas=(1,), isr=(1,)), site.state(T1, replicas=(1,), isr=(1,)))
    seen: set[tuple[int, int]] = set()

    class Watch(trio.abc.Instrument):
        """Wherever a task gives way: a task of the test's own is not sure to get each turn, trio draws their order."""

        def after_task_step(self, task: trio.lowlevel.Task) -> None:
            seen.add((site.partition(T0).log.log_end_offset, site.partition(T1).log.log_end_offset))

    watch = Watch()
    trio.lowlevel.add_instrument(watch)
    hand = await answered(site, produce_hand((T0, good("gzip")), (T1, good("gzip")), acks=1))
    trio.lowlevel.remove_instrument(watch)
    assert (5, 0) in seen and [outcome.error_code for outcome in hand.outcomes] == [0, 0]


async def test_leadership_lost_meanwhile_is_answered_and_nothing_is_appended(autojump_clock: MockClock) -> None:
    site = site_with({"compression.type": "zstd"})
    await site.lead()
    hand = await waiting(site)
    await site.follow_leader(leader=2, epoch=1)
    await site.run_submitted()
    outcome = hand.outcomes[0]
    assert (outcome.error_code, outcome.current_leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)
    assert not stored(site)


async def test_a_new_epoch_of_the_same_leader_is_that_of_the_batch(autojump_clock: MockClock) -> None:
    site = site_with({"compression.type": "zstd"})
    await site.lead(replicas=(1,), isr=(1,))
    hand = await waiting(site)
    await site.lead(epoch=4, replicas=(1,), isr=(1,))
    await site.run_submitted()
    assert hand.outcomes[0].error_code == 0
    assert read_header(stored(site)).partition_leader_epoch == 4


async def test_an_isr_that_became_too_small_meanwhile_refuses_acks_all(autojump_clock: MockClock) -> None:
    site = site_with({"compression.type": "zstd", "min.insync.replicas": "2"})
    await site.lead()
    hand = await waiting(site)
    await site.lead(epoch=1, isr=(1,))
    await site.run_submitted()
    assert hand.outcomes[0].error_code == ErrorCode.NOT_ENOUGH_REPLICAS and not stored(site)


async def test_a_topic_that_was_made_anew_meanwhile_is_another_one(autojump_clock: MockClock) -> None:
    site = site_with({"compression.type": "zstd"})
    await site.lead()
    hand = await waiting(site)
    site.stop(delete=True)
    await site.order(site.state(T0, epoch=0), topic_id=OTHER_ID)
    await site.run_submitted()
    assert hand.outcomes[0].error_code and not stored(site)


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (WORKER_DIED, ErrorCode.REQUEST_TIMED_OUT),
        (NO_WORKER, ErrorCode.REQUEST_TIMED_OUT),
        ("ValueError", ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_a_worker_that_fails_is_told_as_the_brokers_fault(
    kind: str, code: ErrorCode, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = site_with({"compression.type": "zstd"})
    await site.lead()

    async def fail(*_: object) -> None:
        raise ComputingFailed("job", kind, "it is over")

    monkeypatch.setattr(site.environment.computing, "run", fail)
    hand = await answered(site, produce_hand((T0, good("gzip"))))
    outcome = hand.outcomes[0]
    assert (outcome.error_code, stored(site)) == (code, b"")
    assert outcome.error_message and "it is over" in outcome.error_message
    assert "batches not converted" in site.event_names()


# --- bounds ------------------------------------------------------------------------------------------------------


async def test_a_request_is_converted_in_jobs_of_bounded_size(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(converter, "JOB_BYTES", 3000)
    site = site_with({"compression.type": "zstd"})
    await site.lead(replicas=(1,), isr=(1,))
    one = good("none")
    assert 3000 / 2 < len(one) < 3000
    hand = await answered(site, produce_hand((T0, one * 4), acks=1))
    assert hand.outcomes[0].error_code == 0
    assert site.environment.computing.calls == 4  # type: ignore[attr-defined]
    assert len(decode_records(stored(site))) == 20


async def test_what_comes_back_larger_than_it_was_sent_is_bounded_per_job_too(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = site_with({"compression.type": "uncompressed", "max.message.bytes": "2000000"})
    await site.lead(replicas=(1,), isr=(1,))
    hand = await answered(site, produce_hand((T0, good("gzip") * 5), acks=1))
    assert hand.outcomes[0].error_code == 0
    assert site.environment.computing.calls == 3  # type: ignore[attr-defined]


async def test_a_request_whose_batches_decode_to_too_much_in_all_is_refused(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(converter, "MAX_DECODED_BYTES", 1_000_000)
    monkeypatch.setattr(converter, "JOB_BYTES", 2000)
    site = ReplicaSite(topic={"compression.type": "zstd"})
    await site.order(site.state(T0, replicas=(1,), isr=(1,)), site.state(T1, replicas=(1,), isr=(1,)))
    hand = await answered(site, produce_hand((T0, bomb("gzip")), (T1, bomb("gzip") * 2), acks=1))
    assert [o.error_code for o in hand.outcomes] == [0, ErrorCode.RECORD_LIST_TOO_LARGE]
    assert stored(site, T0) and not stored(site, T1)
