"""How fast connections may be made: those of a broker come later, those of an address are closed."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from strandline.broker.network.request import RequestInHand
from strandline.broker.network.request_channel import Handler
from strandline.broker.quotas import connections as module
from strandline.broker.quotas.connections import CreationRates
from strandline.broker.quotas.entities import DEFAULT, QuotaEntity
from strandline.broker.quotas.sensors import Windows
from strandline.protocol.api import ApiKey
from strandline.protocol.messages import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse
from strandline.runtime.config.values import INT_MAX
from support.pipeline import open_pipeline
from support.raw_client import frame_of, request_frame

WINDOWS = Windows(1, 11, 1)


def metadata(request: RequestInHand[MetadataRequest]) -> None:
    request.respond(MetadataResponse([], []))


def api_versions(request: RequestInHand[ApiVersionsRequest]) -> None:
    request.respond(ApiVersionsResponse(0, []))


HANDLERS: dict[ApiKey, Handler] = {ApiKey.METADATA: metadata, ApiKey.API_VERSIONS: api_versions}
KEY = "0123456789abcdef" * 2


async def test_connections_to_a_broker_are_accepted_later_and_none_is_refused(autojump_clock: MockClock) -> None:
    async with open_pipeline(HANDLERS, rates=CreationRates(WINDOWS, 2)) as pipeline:
        clients = [await pipeline.connect() for _ in range(12)]
        began = trio.current_time()
        for client in clients:
            assert await client.request(MetadataRequest()) is not None
        assert trio.current_time() - began == pytest.approx(5, abs=0.6)


def test_quotas_that_change_forget_no_debt_of_addresses_that_still_have_one() -> None:
    rates = CreationRates(WINDOWS, INT_MAX)
    greedy, modest = QuotaEntity(ip="greedy"), QuotaEntity(ip="modest")
    rates.set_ip_bounds({greedy: 1, modest: 2}, 5.0)
    assert [rates.refused_for_s("greedy", 5.0) for _ in range(3)] == [0, 0, 1]
    for others in ({modest: 2}, {modest: 5}, {}):
        rates.set_ip_bounds({greedy: 1, **others}, 5.0)
        assert rates.refused_for_s("greedy", 5.0) == 1 and [*rates.rows(5.0)]
    for bound, owed_s in ((2, 0.5), (1, 1.0), (4, 0.25)):
        rates.set_ip_bounds({greedy: bound}, 5.0)
        assert rates.refused_for_s("greedy", 5.0) == owed_s, "one connection, at the new pace"
    rates.set_ip_bounds({QuotaEntity(ip=DEFAULT): 1}, 5.0)
    assert rates.refused_for_s("greedy", 5.0) == 1, "what counts for it is another entity's now"
    rates.set_ip_bounds({}, 5.0)
    assert rates.refused_for_s("greedy", 5.0) == 0 and not [*rates.rows(5.0)]
    rates.set_ip_bounds({greedy: 1}, 5.0)
    assert rates.refused_for_s("greedy", 5.0) == 0, "one that is new counts anew"


async def test_an_address_that_connects_too_fast_is_kept_a_while_and_closed_and_others_are_served(
    autojump_clock: MockClock,
) -> None:
    rates = CreationRates(WINDOWS, INT_MAX)
    rates.set_ip_bounds({QuotaEntity(ip="greedy"): 1}, 0.0)
    async with open_pipeline(HANDLERS, rates=rates) as pipeline:
        for _ in range(2):
            assert await (await pipeline.connect("greedy")).request(MetadataRequest()) is not None
        began = trio.current_time()
        refused = await pipeline.connect("greedy")
        assert await (await pipeline.connect("other")).request(MetadataRequest()) is not None
        assert await refused.is_closed_by_peer()
        assert trio.current_time() - began == pytest.approx(1, abs=0.1)
        assert pipeline.quota.total == 3, "what is closed is given back"
        assert await (await pipeline.connect("greedy")).request(MetadataRequest()) is not None


async def test_an_ipv4_address_within_an_ipv6_one_has_the_quota_of_that_ipv4_address(
    autojump_clock: MockClock,
) -> None:
    """So it comes to a listener of both kinds (`[::]`)."""
    rates = CreationRates(WINDOWS, INT_MAX)
    rates.set_ip_bounds({QuotaEntity(ip="10.0.0.7"): 1}, 0.0)
    async with open_pipeline(HANDLERS, rates=rates) as pipeline:
        for host in ("::ffff:10.0.0.7", "10.0.0.7"):
            assert await (await pipeline.connect(host)).request(MetadataRequest()) is not None
        assert pipeline.quota._per_host == {"10.0.0.7": 2}
        assert await (await pipeline.connect("::ffff:a00:7")).is_closed_by_peer()


OF_BROKER = request_frame(ApiVersionsRequest(client_id="broker-2", broker_key=KEY))


@pytest.mark.parametrize("cut", [len(OF_BROKER), 1, 3, len(OF_BROKER) - 1])
async def test_a_broker_is_served_though_its_address_connects_too_fast(cut: int, autojump_clock: MockClock) -> None:
    rates = CreationRates(WINDOWS, INT_MAX)
    rates.set_ip_bounds({QuotaEntity(ip="shared"): 0}, 0.0)
    async with open_pipeline(HANDLERS, rates=rates, broker_key=KEY) as pipeline:
        began = trio.current_time()
        broker = await pipeline.connect("shared")
        for piece in (OF_BROKER[:cut], OF_BROKER[cut:]):
            await broker.send(piece)
            await trio.testing.wait_all_tasks_blocked()
        assert await broker.response() is not None and await broker.request(MetadataRequest()) is not None
        assert trio.current_time() - began < 1
        assert pipeline.quota.total == 1
        broker.close()
        await trio.testing.wait_all_tasks_blocked()
        assert pipeline.quota.total == 0


@pytest.mark.parametrize(
    "first",
    [
        request_frame(ApiVersionsRequest()),
        request_frame(ApiVersionsRequest(broker_key=KEY[:-1])),
        request_frame(ApiVersionsRequest(client_id="x" * 2000, broker_key=KEY)),
        request_frame(MetadataRequest()) + OF_BROKER,
        frame_of(ApiKey.API_VERSIONS, 0, 1, b"junk"),
        b"GET / HTTP/1.1\r\n\r\n" + OF_BROKER,
        OF_BROKER[:-1],
        b"",
    ],
    ids=[
        "no key",
        "another key",
        "more than the request of a broker has",
        "another request first",
        "no body",
        "another protocol",
        "less than the whole request",
        "nothing",
    ],
)
async def test_who_shows_no_key_of_a_broker_is_not_served_whatever_it_sends(
    first: bytes, autojump_clock: MockClock
) -> None:
    rates = CreationRates(WINDOWS, INT_MAX)
    rates.set_ip_bounds({QuotaEntity(ip="shared"): 0}, 0.0)
    async with open_pipeline(HANDLERS, rates=rates, broker_key=KEY) as pipeline:
        began = trio.current_time()
        client = await pipeline.connect("shared")
        await client.send(first)
        assert await client.is_closed_by_peer()
        assert trio.current_time() - began == pytest.approx(11, abs=0.1)
        assert pipeline.quota.total == 0


def test_the_default_counts_for_each_address_by_itself_and_0_for_none() -> None:
    rates = CreationRates(WINDOWS, INT_MAX)
    rates.set_ip_bounds({QuotaEntity(ip=DEFAULT): 1, QuotaEntity(ip="10.0.0.9"): 0}, 0.0)
    assert [rates.refused_for_s(ip, 5.0) for ip in ("10.0.0.1", "10.0.0.2", "10.0.0.9")] == [0, 0, 11]
    assert [rates.refused_for_s("10.0.0.1", 5.0) for _ in range(2)] == [0, 1.0]


def test_addresses_are_forgotten_and_too_many_share_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_IPS", 3)
    rates = CreationRates(WINDOWS, INT_MAX)
    rates.set_ip_bounds({QuotaEntity(ip=DEFAULT): 1}, 0.0)
    told = [rates.refused_for_s(f"10.0.0.{number}", 0.0) for number in range(100)]
    assert len(rates._ips) <= 4 and any(told)
    assert rates.refused_for_s("10.0.1.1", 100.0) == 0 and len(rates._ips) == 1


def test_a_rate_without_a_limit_holds_nobody() -> None:
    rates = CreationRates(WINDOWS, INT_MAX)
    for _ in range(1000):
        rates.note_accepted(0.0)
    assert rates.accept_in_s(0.0) == 0
    rates.set_rate(1)
    rates.note_accepted(0.0)
    rates.note_accepted(0.0)
    assert rates.accept_in_s(0.0) == 1.0


def test_only_connections_that_are_served_are_told_of_addresses_that_have_a_quota() -> None:
    rates = CreationRates(WINDOWS, INT_MAX)
    rates.set_ip_bounds({QuotaEntity(ip="a"): 2, QuotaEntity(ip="b"): 0}, 0.0)
    for ip in ("b", "other"):
        rates.refused_for_s(ip, 100.0)
    served = 0
    while not rates.refused_for_s("a", 100.0):
        served += 1
    assert served > 1
    assert dict(rates.rows(100.0)) == {"a": pytest.approx(served / 10)}, "as Kafka's rate over eleven windows has it"
    rates.set_ip_bounds({}, 110.0)
    assert list(rates.rows(110.0)) == []


def test_addresses_that_share_a_quota_are_told_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_IPS", 2)
    rates = CreationRates(WINDOWS, INT_MAX)
    rates.set_ip_bounds({QuotaEntity(ip=DEFAULT): 100}, 0.0)
    for number in range(7):
        rates.refused_for_s(f"10.0.0.{number}", 5.0)
    assert [ip for ip, _ in rates.rows(5.0)] == ["10.0.0.0", "10.0.0.1", DEFAULT]
