"""The admin port: HTTP in, what a broker says of itself out; and whether it is ready."""

from __future__ import annotations

import json
import platform
from contextlib import suppress
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

import strandline
from strandline.broker.admin.admin_port import MAX_CONNECTIONS
from strandline.broker.steps import Steps
from strandline.runtime.network import TransportClosed
from strandline.testkit.cluster import CLIENT, SESSION_TIMEOUT_MS, MemoryCluster
from support.admin_site import NOT_READY, READY, Site, get, parse, read_all
from support.at_once import at_once
from support.scenario import T0, cluster_with_topic


async def test_it_lives_while_it_answers(site: Site) -> None:
    assert (await site.ask(get("/live")))[0] == 204


async def test_a_ready_broker_says_so_and_one_that_waits_says_why(site: Site) -> None:
    status, _, body = await site.ask(get("/ready"))
    assert (status, json.loads(body)) == (200, {"ready": True, "waits": []})
    site.health = NOT_READY
    status, _, body = await site.ask(get("/ready?verbose=1"))
    assert (status, json.loads(body)) == (503, {"ready": False, "waits": ["not registered in ZooKeeper"]})


async def test_the_status_is_json(site: Site) -> None:
    status, headers, body = await site.ask(get("/status"))
    assert (status, headers["content-type"], json.loads(body)) == (200, "application/json", {"broker_id": 1})


@pytest.mark.parametrize(
    ("request_bytes", "expected"),
    [
        (get("/"), 404),
        (get("/../etc/passwd"), 404),
        (get("/ready", "POST"), 405),
        (get("/ready", "DELETE"), 405),
        (b"nonsense\r\n\r\n", 400),
        (b"GET /live HTTP/1.1\r\n\r\n", 400),  # no Host
        (b"GET /" + b"x" * 20_000, 431),
        (b"GET /live HTTP/1.1\r\nHost: b\r\n" + b"A: b\r\n" * 5_000 + b"\r\n", 431),  # sent whole
        (b"POST /live HTTP/1.1\r\nHost: b\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"POST /live HTTP/1.1\r\nHost: b\r\nContent-Length: " + b"9" * 5_000 + b"\r\n\r\n", 400),
        (b"GET /live HTTP/1.1\r\nHost: b\r\nContent-Length: 65537\r\n\r\n", 413),
        (b"GET /live HTTP/1.1\r\nHost: b\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 20_000, 413),
        (b"CONNECT /live HTTP/1.1\r\nHost: b\r\n\r\n", 405),
        (b"GET http:///elsewhere HTTP/1.1\r\nHost: b\r\n\r\n", 404),
    ],
)
async def test_what_is_no_question_gets_its_status(site: Site, request_bytes: bytes, expected: int) -> None:
    assert (await site.ask(request_bytes))[0] == expected
    assert (await site.ask(get("/live")))[0] == 204


@pytest.mark.parametrize(
    "request_bytes",
    [
        get("http://broker:9644/live?x=/status"),
        get("HTTP://broker/live"),
        b"\r\n\r\n" + get("/live"),
        b"GET /live HTTP/1.1\r\nHost: b\r\nContent-Length: 65536\r\n\r\n" + b"x" * 65536,
        b"GET /live HTTP/1.1\r\nHost: b\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    ],
)
async def test_unusual_ways_to_ask_are_understood(site: Site, request_bytes: bytes) -> None:
    assert (await site.ask(request_bytes))[0] == 204


@pytest.mark.parametrize("rest", [b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", b"Content-Length: 99999999\r\n\r\n"])
async def test_a_head_request_that_breaks_off_is_refused_without_a_body(
    site: Site, rest: bytes, autojump_clock: Any
) -> None:
    transport = await site.connect()
    transport.send_nowait([b"HEAD /live HTTP/1.1\r\nHost: b\r\n" + rest])
    status, headers, body = parse(await read_all(transport, until_closed=True))
    assert (status // 100, headers["connection"], body) == (4, "close", b"")
    assert site.events() == ["admin port"]
    assert (await site.ask(get("/live")))[0] == 204


async def test_a_peer_may_leave_in_the_middle_of_a_head_request(site: Site) -> None:
    transport = await site.connect()
    transport.send_nowait([b"HEAD /live HTTP/1.1\r\nHost: b\r\nContent-Length: 5\r\n\r\nab"])
    transport.close()
    await trio.testing.wait_all_tasks_blocked()
    assert site.events() == ["admin port"]
    assert (await site.ask(get("/live")))[0] == 204


async def test_a_bug_behind_an_answer_ends_one_connection(site: Site) -> None:
    site.health = None
    transport = await site.connect()
    transport.send_nowait([get("/status")])
    assert parse(await read_all(transport, until_closed=True))[0] == 500
    assert site.events() == ["admin port", "an admin request failed"]
    site.health = READY
    assert (await site.ask(get("/ready")))[0] == 200


WORDS = st.sampled_from(
    [
        *(b"GET HEAD POST CONNECT OPTIONS /live /ready /status * x:1 HTTP/1.1 HTTP/1.0 3 abc zz".split()),
        *(b" ", b"\r\n", b"\r\n\r\n", b"\x00", b"\xff", b"3\r\nabc\r\n", b"0\r\n\r\n"),
        *(b"HEAD /live HTTP/1.1\r\nHost: b\r\n", b"GET /status HTTP/1.1\r\nHost: b\r\n", b"GET /ready HTTP/1.0\r\n"),
        *(b"Content-Length: 3\r\n", b"Content-Length: 0\r\n", b"Transfer-Encoding: chunked\r\n"),
        *(b"Connection: close\r\n", b"Connection: upgrade\r\nUpgrade: x\r\n", b"Expect: 100-continue\r\n"),
    ]
)


@given(packets=st.lists(st.lists(WORDS, max_size=8).map(b"".join), max_size=4))
def test_nothing_that_a_peer_sends_is_a_bug(packets: list[bytes]) -> None:
    async def send() -> None:
        site = Site()
        async with trio.open_nursery() as nursery:
            await site.run(nursery)
            transport = await site.connect()
            with suppress(TransportClosed):
                for packet in packets:
                    transport.send_nowait([packet])
                    await trio.testing.wait_all_tasks_blocked()
            transport.close()
            await trio.testing.wait_all_tasks_blocked()
            assert site.events() == ["admin port"]
            nursery.cancel_scope.cancel()

    trio.run(send, clock=trio.testing.MockClock(autojump_threshold=0))


async def test_head_has_no_body_and_the_length_of_one(site: Site) -> None:
    status, headers, body = await site.ask(get("/ready", "HEAD").replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    assert (status, body) == (200, b"")
    assert int(headers["content-length"]) > 0


async def test_a_connection_serves_one_request_after_another(site: Site) -> None:
    transport = await site.connect()
    for _ in range(3):
        transport.send_nowait([get("/ready")])
        assert parse(await read_all(transport, until_closed=False))[0] == 200


async def test_two_requests_in_one_packet_are_both_answered(site: Site) -> None:
    close = get("/ready").replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    transport = await site.connect()
    transport.send_nowait([get("/status") + close])
    assert (await read_all(transport, until_closed=True)).count(b"HTTP/1.1 200") == 2


class Counting(trio.abc.Instrument):
    """Of whoever asks for the health of a broker: how many steps are done for them in one turn of the loop."""

    def __init__(self) -> None:
        self.turns: list[int] = []
        self._done = 0

    def steps(self) -> Steps[tuple[str, ...]]:
        for _ in range(20):
            self._done += 1
            yield
        self._done += 1
        return ()

    def before_io_wait(self, timeout: float) -> None:
        """Between two turns."""
        if self._done:
            self.turns.append(self._done)
            self._done = 0


async def test_the_loop_turns_after_each_step_however_many_ask(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    counting, answers = Counting(), list[int]()
    monkeypatch.setattr(site, "waits", counting.steps)
    monkeypatch.setattr(site, "status", counting.steps)

    async def ask(path: str) -> None:
        answers.append((await site.ask(get(path)))[0])

    trio.lowlevel.add_instrument(counting)
    try:
        async with trio.open_nursery() as nursery:
            for _ in range(MAX_CONNECTIONS // 2):
                nursery.start_soon(ask, "/status")
                nursery.start_soon(ask, "/ready")
    finally:
        trio.lowlevel.remove_instrument(counting)
    assert answers == [200] * MAX_CONNECTIONS
    assert counting.turns == [1] * 21 * MAX_CONNECTIONS


# --- ready, on whole brokers in memory ---------------------------------------------------------------------------


def waits(cluster: MemoryCluster, broker_id: int) -> tuple[str, ...]:
    return at_once(cluster.broker(broker_id).health.waits())


async def test_a_broker_is_ready_once_it_has_caught_up_and_stays_so(autojump_clock: Any) -> None:
    async with cluster_with_topic() as (cluster, producer, ledger):
        await cluster.until(lambda: not any(waits(cluster, broker_id) for broker_id in (1, 2, 3)), "all ready")
        cluster.crash(3)
        await ledger.produce(producer, T0, [b"%d" % number for number in range(50)])
        cluster.cut_both(1, 3)
        await cluster.start_broker(3)
        await trio.sleep(5)
        assert waits(cluster, 3) != (), "it cannot have caught up: it does not reach its leader"
        cluster.heal(1, 3)
        await cluster.until(lambda: waits(cluster, 3) == (), "ready again")
        cluster.cut_both(1, 3)
        await ledger.produce(producer, T0, [b"acknowledged once the ISR is smaller"])
        assert 3 not in cluster.isr(T0)
        assert waits(cluster, 3) == ()


async def test_a_broker_need_not_have_what_is_being_moved_to_it(autojump_clock: Any) -> None:
    """It may take hours, and nobody reads it there before."""
    async with cluster_with_topic((2,), min_insync_replicas=1) as (cluster, producer, ledger):
        await ledger.produce(producer, T0, [b"a"])
        cluster.cut_both(2, 3)
        async with cluster.admin() as admin:
            assert await admin.alter_partition_reassignments({T0: [2, 3]}) == {T0: None}
        cluster.crash(3)
        await cluster.start_broker(3)
        await cluster.until(lambda: cluster.hosts(3, T0), "hosted")
        await cluster.until(lambda: waits(cluster, 3) == (), "ready")
        assert 3 not in cluster.isr(T0)


async def test_a_log_that_was_not_loaded_is_told_apart_from_one_that_catches_up(autojump_clock: Any) -> None:
    async with cluster_with_topic(configs={"segment.bytes": "200"}) as (cluster, producer, ledger):
        for _ in range(9):
            await ledger.produce(producer, T0, [b"x" * 50])
        await cluster.stop(3)
        disk = cluster.nodes[3].disk
        disk.unlink(next(path for path in sorted(disk.content()) if path.endswith("t-0/00000000000000000000.log")))
        await cluster.start_broker(3)
        await trio.sleep(5)
        assert waits(cluster, 3) == ("did not load what is damaged, see the log of the start: t-0",)
        assert at_once(cluster.broker(3).health.status())["partitions"]["offline"] == 1


async def test_a_broker_whose_session_ended_is_not_ready(autojump_clock: Any) -> None:
    async with cluster_with_topic() as (cluster, _, _):
        await cluster.until(lambda: waits(cluster, 2) == (), "ready")
        cluster.cut_from_zookeeper(2)
        cluster.expire_session(2)
        cluster.heal_zookeeper(2)
        await cluster.until(lambda: waits(cluster, 2) == ("not registered in ZooKeeper",), "not registered")
        await cluster.until(lambda: waits(cluster, 2) == (), "ready again")


async def test_a_broker_that_zookeeper_must_have_given_up_is_not_ready(autojump_clock: Any) -> None:
    async with cluster_with_topic() as (cluster, _, _):
        await cluster.until(lambda: waits(cluster, 2) == (), "ready")
        cluster.cut_from_zookeeper(2)
        await trio.sleep(SESSION_TIMEOUT_MS / 1000 - 1)
        assert waits(cluster, 2) == (), "the session may still live"
        await trio.sleep(2)
        assert 2 not in cluster.registered()
        assert waits(cluster, 2) == ("no contact with ZooKeeper for 7 s",)
        cluster.heal_zookeeper(2)
        await cluster.until(lambda: waits(cluster, 2) == (), "ready again")


async def test_a_broker_that_leaves_is_not_ready_from_the_beginning_to_the_end(autojump_clock: Any) -> None:
    async with cluster_with_topic() as (cluster, _, _):
        await cluster.until(lambda: waits(cluster, 2) == (), "ready")
        broker, told = cluster.broker(2), []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cluster.stop, 2)
            await trio.testing.wait_all_tasks_blocked()
            while cluster.nodes[2].is_up:
                told.append(at_once(broker.health.waits()))
                await trio.sleep(0.001)
        assert len(told) > 3
        assert set(told) == {("shutting down",)}


async def test_the_status_names_versions(autojump_clock: Any) -> None:
    cluster = MemoryCluster(brokers=1)
    async with cluster.running():
        status = at_once(cluster.broker(1).health.status())
        assert status["time_ms"] == cluster.broker(1).environment.wall_clock.now_ms()
        assert status["versions"]["strandline"] == strandline.__version__
        assert status["versions"]["python"] == platform.python_version()
        assert json.loads(json.dumps(status)) == status


async def test_the_status_counts_what_a_broker_leads(autojump_clock: Any) -> None:
    async with cluster_with_topic() as (cluster, _, _):
        status = at_once(cluster.broker(1).health.status())
        assert status["partitions"] == {"hosted": 1, "led": 1, "under_replicated": 0, "offline": 0}
        assert status["live_brokers"] == [1, 2, 3]
        cluster.crash(2)
        await cluster.until(lambda: 2 not in cluster.isr(T0), "a smaller ISR")
        await cluster.until(
            lambda: at_once(cluster.broker(1).health.status())["partitions"]["under_replicated"] == 1, "counted"
        )


async def test_the_port_of_a_broker_can_be_switched_off(autojump_clock: Any) -> None:
    cluster = MemoryCluster(brokers=1, config={"admin.listener": ""})
    async with cluster.running():
        lines = [line for line in cluster.history if "admin port" in line]
        assert lines == []
    assert CLIENT
