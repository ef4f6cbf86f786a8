"""What a request took, stage by stage, on a clock that the test turns."""

from __future__ import annotations

from random import Random

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from strandline.broker.metrics.families import BUCKET_LIMITS_S
from strandline.broker.metrics.of_requests import OfRequests
from strandline.broker.network.limits import ConnectionLimits
from strandline.broker.network.request import RequestInHand
from strandline.broker.network.request_counts import (
    LIMITS_BYTES,
    NOT_YET,
    QUICK_S,
    STAGES,
    Buckets,
    CountsByApi,
    RequestCounts,
    RequestTimes,
    histogram_of,
    kafka_name,
)
from strandline.protocol.api import ApiKey
from strandline.protocol.errors import BrokerError, ErrorCode
from strandline.protocol.messages import (
    DeleteTopicsRequest,
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    MetadataTopic,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    Request,
    TopicProduceResponse,
)
from strandline.testkit.network import MemoryNetwork
from support.pipeline import Pipeline, open_pipeline
from support.raw_client import produce_frames, produce_request, request_frame

OK = ProduceResponse([])


def times_ms(counts: RequestCounts) -> dict[str, list[float]]:
    """Stage → the different times there were."""
    found: dict[str, list[float]] = {}
    for stage in STAGES:
        buckets: Buckets = getattr(counts, stage)
        times = histogram_of(buckets.counts, buckets.limits, unit=1e6)
        if passed_by := counts.passed_by(stage):
            times.record(0, passed_by)
        found[stage] = [limit_us / 1000 for limit_us, _ in times.cumulated()]
    return found


def near(*values_ms: float) -> object:
    """A bucket ends a fifth above the one before, at most."""
    return pytest.approx(list(values_ms), rel=0.1, abs=0.001)


def fetch(replica_id: int) -> FetchRequest:
    return FetchRequest(0, 0, 0, [], replica_id)


def counts_of(pipeline: Pipeline, name: str) -> RequestCounts:
    counts = pipeline.channel.counts
    settle(counts)
    return dict(counts.named())[name]


async def test_what_is_answered_in_its_burst_waits_for_nothing(autojump_clock: trio.testing.MockClock) -> None:
    async with open_pipeline({ApiKey.PRODUCE: lambda request: request.respond(OK)}) as pipeline:
        client = await pipeline.connect()
        await client.send(produce_frames(5, size=1000))
        await client.responses(5)
        counts = counts_of(pipeline, "Produce")
        assert (counts.requests, counts.answered) == (5, 5)
        assert times_ms(counts) == {stage: near(0) for stage in STAGES}
        assert counts.sizes.total == 5 * len(produce_frames(1, size=1000))
        assert pipeline.channel.counts.received_bytes == counts.sizes.total
        assert 0 < pipeline.channel.counts.sent_bytes < 500


async def test_waiting_for_followers_is_remote_time(autojump_clock: trio.testing.MockClock) -> None:
    parked: list[RequestInHand] = []
    async with open_pipeline({ApiKey.PRODUCE: parked.append}) as pipeline:
        client = await pipeline.connect()
        await client.send(produce_frames(2))
        await trio.sleep(0.080)
        for request in parked:
            request.respond(OK)
        pipeline.channel.flush_responses()
        await client.responses(2)
        counts = counts_of(pipeline, "Produce")
        assert counts.answered == 2
        assert times_ms(counts) == {stage: near(80 if stage in ("remote", "total") else 0) for stage in STAGES}


async def test_an_answer_waits_behind_those_to_earlier_requests(autojump_clock: trio.testing.MockClock) -> None:
    parked: list[RequestInHand] = []
    async with open_pipeline({ApiKey.PRODUCE: parked.append}) as pipeline:
        client = await pipeline.connect()
        await client.send(produce_frames(2))
        await trio.sleep(0.010)
        parked[1].respond(OK)
        pipeline.channel.flush_responses()
        await trio.sleep(0.040)
        parked[0].respond(OK)
        pipeline.channel.flush_responses()
        await client.responses(2)
        times = times_ms(counts_of(pipeline, "Produce"))
        assert times["remote"] == near(10, 50)
        assert times["response_queue"] == near(0, 40)
        assert times["total"] == near(50)


async def test_a_request_in_line_spends_queue_time_and_its_handler_local_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def slow(request: RequestInHand[DeleteTopicsRequest]) -> object:
        await trio.sleep(0.030)
        return request.api.failure(request.message, ErrorCode.NOT_CONTROLLER, "")

    async with open_pipeline({ApiKey.DELETE_TOPICS: slow}, num_handlers=1) as pipeline:
        for _ in range(2):
            client = await pipeline.connect()
            await client.send(request_frame(DeleteTopicsRequest(["t"], 1000)))
        await trio.sleep(1)
        counts = counts_of(pipeline, "DeleteTopics")
        times = times_ms(counts)
        assert times["queue"] == near(0, 30)
        assert times["local"] == near(30)
        assert times["remote"] == near(0)
        assert times["total"] == near(30, 60)
        assert counts.errors == {ErrorCode.NOT_CONTROLLER: 2}


async def test_a_peer_that_reads_slowly_makes_send_time(autojump_clock: trio.testing.MockClock) -> None:
    network = MemoryNetwork(window_bytes=64 * 1024)
    large = MetadataResponse([], [], -1, "c" * 30_000)
    async with open_pipeline({ApiKey.METADATA: lambda request: request.respond(large)}, network=network) as pipeline:
        client = await pipeline.connect()
        await client.send(request_frame(MetadataRequest([])) * 40)
        await trio.sleep(0.100)
        counts = counts_of(pipeline, "Metadata")
        answered_at_once = counts.answered
        assert answered_at_once < 40
        await client.responses(40)
        counts = counts_of(pipeline, "Metadata")
        assert counts.answered == 40
        assert max(times_ms(counts)["send"]) == pytest.approx(100, rel=0.1)


@given(
    bursts=st.lists(
        st.tuples(st.integers(1, 500), st.integers(1, 10**9), *[st.floats(0, 10**6)] * 3, st.sampled_from([0, 1, 2])),
        max_size=30,
    ),
    settled_at=st.sets(st.integers(0, 30)),
)
def test_what_is_counted_together_is_as_if_it_were_counted_one_by_one(
    bursts: list[tuple[int, int, float, float, float, int]], settled_at: set[int]
) -> None:
    """Stages last for anything from nothing to days, at once (0), after a wait (1), or handled elsewhere (2)."""
    counts, expected, now = RequestCounts(), {name: Buckets() for name in STAGES}, 5e6
    expected["sizes"] = Buckets(LIMITS_BYTES)
    for number, (count, size_bytes, first_s, second_s, third_s, kind) in enumerate(bursts):
        taken_at, one, two, three = now, now + first_s, now + first_s + second_s, now + first_s + second_s + third_s
        took = {"total": three - taken_at, "send": three - two}
        if kind == 0:
            answer_at_once(counts, count, size_bytes, taken_at, two, three)
            took["local"] = two - taken_at
        else:
            counts.requests += count
            times = RequestTimes(counts, size_bytes, taken_at)
            if kind == 1:
                times.begun_at = one
                took |= {"queue": one - taken_at, "local": two - one}
                times.took(count, NOT_YET, two, three)
            else:
                times.handled_at = taken_at
                took |= {"local": 0, "remote": one - taken_at, "response_queue": two - one}
                times.took(count, one, two, three)
        for stage, seconds in took.items():
            expected[stage].add(seconds, count)
        expected["sizes"].add(size_bytes, count)
        if number in settled_at:
            settle(counts)
        now = three + QUICK_S
    settle(counts)
    for name, buckets in expected.items():
        found: Buckets = getattr(counts, name)
        assert found.total == pytest.approx(buckets.total)
        assert found.counts == buckets.counts
    assert counts.requests == counts.answered == sum(burst[0] for burst in bursts)


def settle(counts: RequestCounts | CountsByApi) -> None:
    for _ in counts.settle():
        pass


def answer_at_once(
    counts: RequestCounts, count: int, size_bytes: int, taken_at: float, left_at: float, sent_at: float
) -> None:
    """As a request channel has it counted."""
    counts.untimed += count
    if sent_at >= counts.timed_from:
        counts.time_burst(count, size_bytes, taken_at, left_at, sent_at)


@pytest.mark.parametrize("gap_s", [0.0, 50e-6])
def test_few_of_many_quick_bursts_are_timed_and_stand_for_all_in_proportion(gap_s: float) -> None:
    """Those that take long meet the end of an interval more often: they are told no more often than they come."""
    counts, random, now = RequestCounts(), Random(5), 100.0
    long_ones, bursts = 0, 200_000
    for _ in range(bursts):
        is_long = random.random() < 0.1
        long_ones += is_long
        took_s = 0.002 if is_long else 0.00005
        answer_at_once(counts, 1, 4000 if is_long else 100, now, now + took_s, now + took_s)
        now += took_s + gap_s
    settle(counts)
    assert counts.requests == counts.answered == sum(counts.total.counts) == sum(counts.sizes.counts) == bursts
    for buckets, limit in ((counts.total, 0.001), (counts.local, 0.001), (counts.sizes, 1000)):
        assert bursts - buckets.at_most([limit])[0] == pytest.approx(long_ones, rel=0.1)


def test_each_slow_burst_is_timed_itself_and_stands_for_no_quick_one() -> None:
    counts, now = RequestCounts(), 100.0
    for number in range(1000):
        took_s = 0.010 if number % 100 == 50 else 0.00001
        answer_at_once(counts, 2, 100, now, now + took_s, now + took_s)
        now += took_s
    settle(counts)
    assert sum(counts.total.counts) == counts.answered == 2000
    assert 2000 - counts.total.at_most([0.001])[0] == 20
    assert counts.total.at_most([0.00012])[0] == 1980


def test_what_nobody_has_timed_when_somebody_looks_is_as_the_last_one_that_was() -> None:
    counts = RequestCounts()
    for start in (100.0, 100.001, 100.002):
        answer_at_once(counts, 1, 100, start, start + 0.0002, start + 0.0003)
    settle(counts)
    assert counts.requests == 3
    assert counts.total.total == pytest.approx(0.0009)
    settle(counts)
    assert counts.requests == sum(counts.send.counts) == 3


def answer_later(counts: RequestCounts, count: int, taken_at: float) -> RequestTimes:
    """Of a burst that has to wait, as `count_burst` has it counted; the answers are told to it."""
    counts.requests += count
    times = RequestTimes(counts, 100, taken_at, handled_at=taken_at, timed=0)
    if counts.claim_timing(taken_at):
        times.timed = count
    return times


def test_few_of_many_bursts_that_wait_for_a_short_time_are_timed_and_stand_for_all_in_proportion() -> None:
    """Each of two requests; the answers to the first ones of these leave earlier."""
    counts, random, now, bursts = RequestCounts(), Random(7), 100.0, 100_000
    for _ in range(bursts):
        times = answer_later(counts, 2, now)
        took_s = 0.0004 if random.random() < 0.2 else 0.0001
        for each_s in (took_s, took_s + 0.001):
            times.took(1, now + each_s, now + each_s, now + each_s)
        now += 0.0001
    settle(counts)
    assert counts.requests == counts.answered == sum(counts.remote.counts) == sum(counts.sizes.counts) == 2 * bursts
    below = [counts.remote.at_most([limit])[0] / bursts for limit in (0.0002, 0.0006, 0.0012, 0.002)]
    assert below == pytest.approx([0.8, 1, 1.8, 2], rel=0.1)


def test_of_those_that_wait_each_slow_one_stands_for_itself() -> None:
    counts, now = RequestCounts(), 100.0
    for number in range(1000):
        times = answer_later(counts, 3, now)
        for slow_s in (0.0, 0.0, 0.020 if number % 100 == 50 else 0.0):
            sent_at = now + 0.0001 + slow_s
            times.took(1, sent_at, sent_at, sent_at)
        now += 0.0001
    settle(counts)
    assert counts.answered == sum(counts.total.counts) == 3000
    assert 3000 - counts.total.at_most([0.005])[0] == 10


def test_what_waits_while_nothing_was_timed_yet_stands_for_itself() -> None:
    counts = RequestCounts()
    first, second = (answer_later(counts, 1, at) for at in (100.0, 100.001))
    second.took(1, 100.002, 100.002, 100.002)
    settle(counts)
    assert (counts.requests, counts.answered, counts.total.total) == (2, 1, pytest.approx(0.001))
    first.took(1, 100.003, 100.003, 100.003)
    settle(counts)
    assert (counts.answered, counts.total.total) == (2, pytest.approx(0.004))


def test_however_large_bursts_are_little_is_noted_and_each_step_counts_little() -> None:
    counts = RequestCounts()
    for count in range(1, 2000):
        for _ in range(3):
            RequestTimes(counts, 100, 1.0, handled_at=1.1).took(count, 1.2, 1.3, 1.4)
    assert sum(map(len, counts.ways.values())) < 64 * 256 * 8
    steps = 0
    for answered in (counts.answered for _ in counts.settle()):
        steps += 1
        assert answered == counts.answered
    assert steps == 64
    assert counts.answered == 3 * sum(range(2000))


async def test_sizes_are_those_of_single_requests(autojump_clock: trio.testing.MockClock) -> None:
    """As Kafka tells them: who sends a large one among small ones is seen."""
    async with open_pipeline({ApiKey.PRODUCE: lambda request: request.respond(OK)}) as pipeline:
        client = await pipeline.connect()
        for _ in range(300):
            await client.send(produce_frames(1, size=40_000) + produce_frames(9, size=100))
            await client.responses(10)
            await trio.sleep(0.005 + 1e-6)
        sizes = counts_of(pipeline, "Produce").sizes
        assert sum(sizes.counts) == 3000
        assert 3000 - sizes.at_most([10_000])[0] == pytest.approx(300, rel=0.5)
        assert sizes.at_most([1000])[0] == pytest.approx(2700, rel=0.1)


@pytest.mark.parametrize("limit_s", BUCKET_LIMITS_S)
def test_a_time_counts_below_exactly_those_limits_that_it_does_not_exceed(limit_s: float) -> None:
    buckets = Buckets()
    buckets.add_each([limit_s * 1.001, limit_s, limit_s * 0.999], 1)
    buckets.add(limit_s, 2)
    at_most = dict(zip(BUCKET_LIMITS_S, buckets.at_most(BUCKET_LIMITS_S), strict=True))
    expected = {each: 0 if each < limit_s else 4 if each == limit_s else 5 for each in BUCKET_LIMITS_S}
    assert at_most == expected


def test_what_lasts_for_longer_than_any_limit_is_counted() -> None:
    buckets = Buckets()
    buckets.add_each([1e9, 1.0], 2)
    assert (sum(buckets.counts), buckets.at_most(BUCKET_LIMITS_S)[-1], buckets.total) == (4, 2, 2e9 + 2)
    assert histogram_of(buckets.counts, buckets.limits, unit=1).max_us == pytest.approx(900_000)


@pytest.mark.parametrize(("is_broker", "of_followers"), [(True, 2), (False, 0)])
async def test_fetches_are_told_apart_by_who_asks(
    is_broker: bool, of_followers: int, autojump_clock: trio.testing.MockClock
) -> None:
    """A client that names a follower's id is a client."""
    handlers = {ApiKey.FETCH: lambda request: request.respond(FetchResponse([]))}
    async with open_pipeline(handlers, is_inter_broker=is_broker) as pipeline:
        client = await pipeline.connect()
        await client.send(request_frame(fetch(-1)))
        await client.responses(1)
        await client.send(2 * request_frame(fetch(3)))
        await client.responses(2)
        for name, count in (("FetchConsumer", 3 - of_followers), ("FetchFollower", of_followers), ("Fetch", 3)):
            counts = counts_of(pipeline, name)
            assert (counts.requests, counts.answered) == (count, count)
            assert sum(counts.total.counts) == sum(counts.sizes.counts) == count


async def test_errors_are_counted_wherever_they_stand_in_an_answer(autojump_clock: trio.testing.MockClock) -> None:
    wrong = PartitionProduceResponse(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    answer = ProduceResponse([TopicProduceResponse("t", [wrong, PartitionProduceResponse(1, 0), wrong])])

    def fail(request: RequestInHand[Request]) -> None:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "no")

    handlers = {ApiKey.PRODUCE: lambda request: request.respond(answer), ApiKey.FETCH: fail}
    async with open_pipeline(handlers) as pipeline:
        client = await pipeline.connect()
        await client.send(produce_frames(1) + request_frame(fetch(-1)))
        await client.send(request_frame(produce_request(), version=99))
        await client.responses(3)
        assert counts_of(pipeline, "Produce").errors == {
            ErrorCode.NOT_LEADER_OR_FOLLOWER: 2,
            ErrorCode.UNSUPPORTED_VERSION: 1,
        }
        assert counts_of(pipeline, "Produce").requests == 2
        for name in ("FetchConsumer", "Fetch"):
            assert counts_of(pipeline, name).errors == {ErrorCode.INVALID_REQUEST: 1}
            assert counts_of(pipeline, name).without_error == 0
        assert counts_of(pipeline, "Produce").without_error == 0


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("is_at_once", [True, False])
async def test_of_an_answer_that_cannot_be_encoded_the_error_counts_that_leaves_instead(
    autojump_clock: trio.testing.MockClock, is_clean: bool, is_at_once: bool
) -> None:
    wrong = [] if is_clean else [PartitionProduceResponse(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    answer = ProduceResponse([TopicProduceResponse(object(), wrong)])
    parked: list[RequestInHand] = []

    def handle(request: RequestInHand[ProduceRequest]) -> None:
        parked.append(request)
        if is_at_once:
            request.respond(answer, is_clean=is_clean)

    async with open_pipeline({ApiKey.PRODUCE: handle}) as pipeline:
        client = await pipeline.connect()
        await client.send(produce_frames(1))
        await trio.testing.wait_all_tasks_blocked()
        if not is_at_once:
            parked[0].respond(answer, is_clean=is_clean)
            pipeline.channel.flush_responses()
        await client.responses(1)
        counts = counts_of(pipeline, "Produce")
        assert counts.errors == {ErrorCode.UNKNOWN_SERVER_ERROR: 1}
        assert (counts.answered, counts.failed) == (1, 1)


async def test_answers_without_an_error_are_told_by_a_counter_that_never_falls(
    autojump_clock: trio.testing.MockClock,
) -> None:
    parked: list[RequestInHand] = []
    failed = ProduceResponse([TopicProduceResponse("t", [PartitionProduceResponse(0, ErrorCode.REQUEST_TIMED_OUT)])])

    def without_error() -> list[tuple[str, float]]:
        samples = [sample for family in source() for sample in family.samples if sample.labels.get("error") == "NONE"]
        return [(sample.name, sample.value) for sample in samples]

    async with open_pipeline({ApiKey.PRODUCE: parked.append}) as pipeline:
        source = OfRequests(pipeline.channel, lambda: 0)
        client = await pipeline.connect()
        await client.send(produce_frames(4))
        await trio.testing.wait_all_tasks_blocked()
        name = "kafka_network_requestmetrics_errors_total"
        assert without_error() == [(name, 0)]
        for request in parked[:2]:
            request.respond(OK, is_clean=True)
        pipeline.channel.flush_responses()
        assert without_error() == [(name, 2)]
        parked[3].respond(failed)  # it waits for the answer before it
        pipeline.channel.flush_responses()
        assert without_error() == [(name, 2)]
        parked[2].respond(OK)
        pipeline.channel.flush_responses()
        assert without_error() == [(name, 3)]


@pytest.mark.parametrize("when", ["behind another", "at once", "in a burst that closes", "behind one, at once"])
async def test_an_answer_with_an_error_that_never_leaves_takes_no_good_one_away(
    autojump_clock: trio.testing.MockClock, when: str
) -> None:
    """A peer that reads nothing, or a connection that closes: what is without an error is counted on."""
    parked: list[RequestInHand] = []
    text = "c" * 200_000
    failed = MetadataResponse([], [MetadataTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "t", [])], -1, text)

    def handle(request: RequestInHand[MetadataRequest]) -> None:
        parked.append(request)
        if when == "at once" or (when == "behind one, at once" and len(parked) == 2):
            request.respond(failed)
        elif when == "in a burst that closes":
            request.respond(failed)
            request.connection.close("test")

    network = MemoryNetwork(window_bytes=64 * 1024)
    async with open_pipeline({ApiKey.METADATA: handle}, network=network) as pipeline:
        client = await pipeline.connect()
        await client.send(request_frame(MetadataRequest([])) * 2)
        await trio.testing.wait_all_tasks_blocked()
        if when == "behind another":
            parked[1].respond(failed)
            pipeline.channel.flush_responses()
        parked[0].connection.close("test")
        await trio.testing.wait_all_tasks_blocked()
        counts = counts_of(pipeline, "Metadata")
        assert (counts.errors != {}, counts.answered, counts.failed) == (True, 0, 0)


async def test_answers_with_errors_count_as_failed_however_they_leave(autojump_clock: trio.testing.MockClock) -> None:
    failed = MetadataResponse([], [MetadataTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "t", [])], -1, "c" * 50_000)
    parked: list[RequestInHand] = []

    def handle(request: RequestInHand[MetadataRequest]) -> None:
        parked.append(request)
        if len(parked) != 3:
            request.respond(failed)

    network = MemoryNetwork(window_bytes=64 * 1024)
    async with open_pipeline({ApiKey.METADATA: handle}, network=network) as pipeline:
        client = await pipeline.connect()
        await client.send(request_frame(MetadataRequest([])) * 6)
        await trio.testing.wait_all_tasks_blocked()
        parked[2].respond(failed)
        pipeline.channel.flush_responses()
        await client.responses(6)
        counts = counts_of(pipeline, "Metadata")
        assert (counts.answered, counts.failed, counts.without_error) == (6, 6, 0)


async def test_requests_without_an_answer_are_counted_when_they_are_handled(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_pipeline({ApiKey.PRODUCE: lambda request: request.no_response()}) as pipeline:
        client = await pipeline.connect()
        await client.send(request_frame(produce_request(acks=0)) * 3)
        await trio.testing.wait_all_tasks_blocked()
        counts = counts_of(pipeline, "Produce")
        assert (counts.requests, counts.answered) == (3, 3)


async def test_a_burst_of_several_apis_is_counted_by_api(autojump_clock: trio.testing.MockClock) -> None:
    parked: list[RequestInHand] = []
    handlers = {
        ApiKey.PRODUCE: parked.append,
        ApiKey.METADATA: lambda request: request.respond(MetadataResponse([], [])),
    }
    async with open_pipeline(handlers) as pipeline:
        client = await pipeline.connect()
        await client.send(request_frame(MetadataRequest([])) + produce_frames(1) + request_frame(MetadataRequest([])))
        await trio.sleep(0.020)
        parked[0].respond(OK)
        pipeline.channel.flush_responses()
        await client.responses(3)
        metadata, produce = counts_of(pipeline, "Metadata"), counts_of(pipeline, "Produce")
        assert (metadata.requests, metadata.answered, produce.requests, produce.answered) == (2, 2, 1, 1)
        assert times_ms(metadata)["response_queue"] == near(0, 20)
        assert times_ms(produce)["remote"] == near(20)


async def test_a_connection_that_closes_takes_its_waiting_requests_along(
    autojump_clock: trio.testing.MockClock,
) -> None:
    parked: list[RequestInHand] = []
    limits = ConnectionLimits(max_in_flight=10)
    async with open_pipeline({ApiKey.PRODUCE: parked.append}, limits=limits) as pipeline:
        client = await pipeline.connect()
        await client.send(produce_frames(3))
        await trio.testing.wait_all_tasks_blocked()
        parked[0].connection.close("test")
        for request in parked:
            request.respond(OK)
        pipeline.channel.flush_responses()
        counts = counts_of(pipeline, "Produce")
        assert (counts.requests, counts.answered) == (3, 0)


@pytest.mark.parametrize(
    ("key", "name"),
    [(ApiKey.LEADER_AND_ISR, "LeaderAndIsr"), (ApiKey.METADATA, "Metadata"), (ApiKey.LIST_OFFSETS, "ListOffsets")],
)
def test_apis_have_kafkas_names(key: ApiKey, name: str) -> None:
    assert kafka_name(key) == name


@pytest.mark.parametrize("is_first", [True, False])
async def test_what_has_no_answer_takes_no_time_however_old_machine_and_connection_are(
    autojump_clock: trio.testing.MockClock, is_first: bool
) -> None:
    autojump_clock.jump(30 * 24 * 3600)

    def handle(request: RequestInHand[ProduceRequest]) -> None:
        if request.message.has_answer:
            request.respond(OK)
        else:
            request.no_response()

    async with open_pipeline({ApiKey.PRODUCE: handle}) as pipeline:
        client = await pipeline.connect()
        if not is_first:
            await client.send(produce_frames(1))
            await client.responses(1)
            await trio.sleep(300)
        await client.send(request_frame(produce_request(acks=0)) * 3)
        await trio.sleep(1)
        counts = counts_of(pipeline, "Produce")
        assert counts.answered == 3 + (not is_first)
        assert times_ms(counts) == {stage: near(0) for stage in STAGES}


async def test_answers_that_wait_behind_a_slow_reader_are_counted_from_when_they_left(
    autojump_clock: trio.testing.MockClock,
) -> None:
    large = MetadataResponse([], [], -1, "c" * 100_000)
    handlers = {ApiKey.METADATA: lambda request: request.respond(large)}
    async with open_pipeline(handlers, network=MemoryNetwork(window_bytes=64 * 1024)) as pipeline:
        client = await pipeline.connect()
        for _ in range(3):
            await client.send(request_frame(MetadataRequest([])))
            await trio.sleep(1)
        await client.responses(3)
        counts = counts_of(pipeline, "Metadata")
        assert counts.answered == 3
        times = times_ms(counts)
        assert times["response_queue"] == near(0, 1000, 2000)
        assert times["send"] == near(0, 3000)
        assert times["total"] == near(1000, 2000, 3000)
