"""The synchronous front over real sockets, with a fake broker in another thread's event loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NoReturn

import pytest
import trio
import trio.testing

from strandline import Admin, Consumer, Producer
from strandline.client import RecordMetadata, sync_client, sync_producer
from strandline.client.errors import (
    ClientClosed,
    FlushTimedOut,
    InvalidClientConfig,
    NoBrokerReachable,
    RecordTooLarge,
    SendsFailed,
    TopicAlreadyExists,
    UnknownTopic,
)
from strandline.client.signals import News
from strandline.client.sync_client import SyncClient
from strandline.protocol.records import decode_columns
from strandline.protocol.types import TopicPartition
from strandline.runtime.client_environment import ClientEnvironment
from strandline.runtime.network import Address
from strandline.runtime.network_socket import SocketNetwork
from strandline.runtime.processes.portal import Crossing, Portal
from unit.client.fake_broker import FakeCluster, Fault

PATIENCE_S = 60
T0 = TopicPartition("t", 0)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """One fake broker on a free loopback port."""
    served = FakeCluster(network=SocketNetwork())
    ready, stop = threading.Event(), trio.Event()
    tokens: list[trio.lowlevel.TrioToken] = []

    async def main() -> None:
        tokens.append(trio.lowlevel.current_trio_token())
        async with trio.open_nursery() as nursery:
            await served.start(nursery)
            ready.set()
            await stop.wait()
            nursery.cancel_scope.cancel()

    thread = threading.Thread(target=trio.run, args=(main,))
    thread.start()
    assert ready.wait(PATIENCE_S)
    yield served
    tokens[0].run_sync_soon(stop.set)
    thread.join(PATIENCE_S)
    assert Portal._shared is None, "the last client stops the thread"


def test_produce_consume_and_describe(cluster: FakeCluster) -> None:
    called: list[object] = []
    with Admin(cluster.bootstrap) as admin:
        assert admin.create_topic("t", 2, 1).num_partitions == 2
        with pytest.raises(TopicAlreadyExists):
            admin.create_topic("t", 2, 1)
        assert admin.list_topics() == ["t"]
        assert admin.describe_cluster().cluster_id == "fake-cluster"
    with Producer(cluster.bootstrap, linger_ms=1) as producer:
        assert producer.partitions_for("t") == [0, 1]
        futures = [producer.send("t", b"%d" % i, partition=0) for i in range(300)]
        for future in futures:
            future.add_done_callback(lambda future: called.append(future.result(0).offset))
        producer.flush()
        assert all(future.done() for future in futures)
        assert [future.result().offset for future in futures] == list(range(300))
        assert called == list(range(300))
        many = producer.send_many("t", [(b"k", b"%d" % i) for i in range(5000)])
        assert sum(batch.records_count for batch in many.result()) == 5000
        assert producer.send_many("t", []).result() == []
        with pytest.raises(RecordTooLarge):
            producer.send("t", b"x" * 2_000_000).result()
        assert producer.delivered_records == 5300
    with pytest.raises(ClientClosed):
        producer.send("t", b"late")
    with Consumer(cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        partitions = [TopicPartition("t", part) for part in consumer.partitions_for_topic("t")]
        leaders = {each.partition: leader for each, (leader, _) in cluster.leaders.items()}
        assert consumer.leaders_for_topic("t") == leaders
        assert set(leaders) == {0, 1}
        ends = consumer.end_offsets(partitions)
        assert sum(ends.values()) == 5300
        consumer.assign(partitions)
        seen = 0
        while seen < 5300:
            seen += sum(map(len, consumer.poll(timeout_ms=1000 * PATIENCE_S, max_records=1000).values()))
        assert [consumer.position(part) for part in partitions] == list(ends.values())
        consumer.seek(T0, 10)
        batches = consumer.fetch_batches(timeout_ms=1000 * PATIENCE_S)
        columns = decode_columns(batches[0].records)  # from the batch with offset 10 on, which need not be the first
        assert columns.values[columns.offsets.index(10)] == b"10"
        consumer.seek(T0, 10)
        assert consumer.poll_columns(timeout_ms=1000 * PATIENCE_S)[0].values[0] == b"10"
        assert consumer.beginning_offsets([T0]) == {T0: 0}
        with pytest.raises(UnknownTopic):
            consumer.partitions_for_topic("absent", timeout_ms=200)


def test_what_was_sent_is_flushed_by_closing(cluster: FakeCluster) -> None:
    cluster.add_topic("t")
    with Producer(cluster.bootstrap, linger_ms=10_000) as producer:
        future = producer.send("t", b"x")
    assert future.result(0).offset == 0


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_callback_that_fails_where_warnings_are_errors_is_shown_and_breaks_nothing(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a record, too, that no task of the producer took any more."""
    cluster.add_topic("t")
    shown: list[str] = []
    monkeypatch.setattr("warnings.showwarning", lambda message, *_: shown.append(str(message)))
    with Producer(cluster.bootstrap) as other:
        with Producer("127.0.0.1:1") as producer:
            futures = [producer.send("t", b"x") for _ in range(3)]
            for future in futures:
                future.add_done_callback(lambda _: 1 / 0)
            with suppress(FlushTimedOut):
                producer.close(0.1)
        for future in futures:
            with pytest.raises(ClientClosed):
                future.result(PATIENCE_S)
        late = other.send("t", b"x")
        assert late.result().offset == 0
        late.add_done_callback(lambda _: 1 / 0)
        assert other.send("t", b"y").result().offset == 1
    assert len(shown) == 4


def test_a_callback_that_fails_warns_and_breaks_nothing(cluster: FakeCluster) -> None:
    cluster.add_topic("t")
    with (
        Producer(cluster.bootstrap, linger_ms=500) as producer,
        pytest.warns(RuntimeWarning, match="callback of SendFuture"),
    ):
        future = producer.send("t", b"x")
        future.add_done_callback(lambda _: 1 / 0)
        assert future.result().offset == 0
        assert producer.send("t", b"y").result().offset == 1


def test_a_future_is_one_of_the_standard_library(cluster: FakeCluster) -> None:
    """Whatever waits for those of an executor waits for these, too."""
    cluster.add_topic("t")
    with Producer(cluster.bootstrap, linger_ms=100, max_request_size=1000) as producer:
        futures = [producer.send("t", b"%d" % number, partition=0) for number in range(100)]
        assert not futures[0].cancel() and not futures[0].cancelled()
        assert {future.result().offset for future in concurrent.futures.as_completed(futures)} == set(range(100))
        futures.append(producer.send("t", b"x" * 2000))
        many = producer.send_many("t", [(None, b"x")] * 10)
        done, left = concurrent.futures.wait([*futures, many], PATIENCE_S)
        assert len(done) == 102 and not left
        assert isinstance(futures[-1].exception(), RecordTooLarge)
        assert many.exception() is None
        assert asyncio.run(awaited(producer.send("t", b"y"))).offset >= 100
    with Producer("127.0.0.1:1") as producer:
        future = producer.send("t", b"x")
        for too_early in (future.result, future.exception):
            with pytest.raises(TimeoutError, match="still on its way"):
                too_early(0.01)
        assert concurrent.futures.wait([future], 0).not_done == {future}
        with suppress(FlushTimedOut):
            producer.close(0)
    assert isinstance(future.exception(), ClientClosed)


async def awaited(future: concurrent.futures.Future[RecordMetadata]) -> RecordMetadata:
    return await asyncio.wrap_future(future)


def test_unreachable_brokers_end_every_call_in_time() -> None:
    with Producer("127.0.0.1:1", max_block_ms=2000, delivery_timeout_ms=2000) as producer:
        with pytest.raises(NoBrokerReachable, match=r"127.0.0.1:1.*refused"):
            producer.send("t", b"x").result()
        producer.close(timeout=PATIENCE_S)
    producer = Producer("127.0.0.1:1")
    future = producer.send("t", b"x")
    with pytest.raises(FlushTimedOut):
        producer.close(timeout=0.2)
    with pytest.raises(ClientClosed):
        future.result(PATIENCE_S)
    with Admin("127.0.0.1:1", default_api_timeout_ms=2000) as admin, pytest.raises(NoBrokerReachable):
        admin.list_topics()
    assert Portal._shared is None


def test_wrong_settings_are_refused_where_the_client_is_made() -> None:
    mistaken: Any = {"lingerms": 5}
    with pytest.raises(InvalidClientConfig, match="linger_ms"):
        Producer("127.0.0.1:1", **mistaken)
    assert Portal._shared is None


class BrokenNetwork(SocketNetwork):
    """A mistake in a client's own tasks, or in what they were given."""

    def __init__(self, failure: BaseException) -> None:
        super().__init__()
        self.failure = failure

    async def connect(self, address: Address) -> NoReturn:
        raise self.failure


class LaterBrokenNetwork(BrokenNetwork):
    """As broken, but not before it is told to be."""

    def __init__(self, failure: BaseException) -> None:
        super().__init__(failure)
        self.gate = trio.Event()

    async def connect(self, address: Address) -> NoReturn:
        await self.gate.wait()
        await super().connect(address)


each_kind_in_use = pytest.mark.parametrize(
    ("kind", "use"),
    [
        (Admin, lambda admin: admin.list_topics(timeout_ms=200)),
        (Consumer, lambda consumer: consumer.partitions_for_topic("t", timeout_ms=200)),
        (Producer, lambda producer: (producer.send("t", b""), producer.flush())),
    ],
)


@each_kind_in_use
def test_calls_after_a_failure_of_the_client_in_its_loop_name_it(
    kind: Callable[..., SyncClient], use: Callable[[Any], object]
) -> None:
    client = kind("127.0.0.1:1", environment=ClientEnvironment(BrokenNetwork(ZeroDivisionError("a mistake"))))
    bystander = Admin("127.0.0.1:1", default_api_timeout_ms=2000)
    for _ in range(3):
        with pytest.raises(ClientClosed, match=r"was ended by ZeroDivisionError\('a mistake'\)") as caught:
            use(client)
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(NoBrokerReachable), bystander:
        bystander.list_topics()
    with suppress(ClientClosed):  # a producer tells again that it could not flush
        client.close()
    assert Portal._shared is None


@each_kind_in_use
def test_calls_under_way_end_with_a_failure_of_the_client_in_its_loop(
    kind: Callable[..., SyncClient], use: Callable[[Any], object]
) -> None:
    client = kind("127.0.0.1:1", environment=ClientEnvironment(BrokenNetwork(ZeroDivisionError("a mistake"))))
    under_way = threading.Event()

    async def endless() -> None:
        under_way.set()
        await trio.sleep_forever()

    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(client._call, endless, timeout_s=PATIENCE_S)
        assert under_way.wait(PATIENCE_S)
        with pytest.raises(ClientClosed):
            use(client)
        with pytest.raises(ClientClosed, match=r"was ended by ZeroDivisionError\('a mistake'\)") as caught:
            call.result()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(ClientClosed, match=r"was ended by ZeroDivisionError\('a mistake'\)"):
        client._call(endless, timeout_s=PATIENCE_S)
    with suppress(ClientClosed):
        client.close()


def test_records_that_a_failure_kept_from_being_accepted_name_it() -> None:
    network = LaterBrokenNetwork(ZeroDivisionError("a mistake"))
    producer = Producer("127.0.0.1:1", environment=ClientEnvironment(network))
    futures = [producer.send("t", b"%d" % i) for i in range(3)]  # one in `accept`, the others behind it
    many = producer.send_many("t", [(None, b"x")] * 5)
    producer._portal.post(network.gate.set)
    outcomes: list[Any] = [*futures, many]
    for future in outcomes:
        with pytest.raises(ClientClosed, match=r"ZeroDivisionError\('a mistake'\)") as caught:
            future.result(PATIENCE_S)
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(ClientClosed, match=r"ZeroDivisionError\('a mistake'\)"):
        producer.send("t", b"too late").result(PATIENCE_S)
    with suppress(ClientClosed):
        producer.close()


def test_a_failure_is_known_as_soon_as_the_producer_counts_as_closed_by_it() -> None:
    network = LaterBrokenNetwork(ZeroDivisionError("a mistake"))
    producer = Producer("127.0.0.1:1", environment=ClientEnvironment(network))

    async def failure_in_that_turn() -> BaseException | None:
        network.gate.set()
        await producer._client.finished()
        return producer._failure

    producer.send("t", b"x")
    assert isinstance(producer._call(failure_in_that_turn, timeout_s=PATIENCE_S), ZeroDivisionError)
    with suppress(ClientClosed):
        producer.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_calls_after_the_loop_itself_failed_name_what_ended_it() -> None:
    with Admin("127.0.0.1:1", environment=ClientEnvironment(BrokenNetwork(SystemExit("on its own")))) as admin:
        with pytest.raises(ClientClosed):
            admin.list_topics(timeout_ms=200)
        admin._portal._thread.join(PATIENCE_S)
        with pytest.raises(ClientClosed, match=r"was ended by SystemExit\('on its own'\)"):
            admin.list_topics()


@pytest.mark.parametrize("kind", [Admin, Consumer, Producer])
def test_a_client_can_be_closed_from_the_moment_on_that_the_interpreter_may_close_it(
    kind: Callable[[str], SyncClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (sync_client, sync_producer):
        monkeypatch.setattr(module, "close_at_exit", lambda client: client._close_at_exit())
    kind("127.0.0.1:1")
    assert Portal._shared is None


@pytest.mark.parametrize("kind", [Admin, Consumer, Producer])
def test_a_client_that_cannot_be_closed_at_exit_is_warned_of_and_hinders_no_other(
    kind: Callable[[str], SyncClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    with kind("127.0.0.1:1") as client, monkeypatch.context() as patches:
        patches.setattr(client, "_stop" if kind is Consumer else "close", lambda *_: 1 / 0)
        with pytest.warns(RuntimeWarning, match="could not be closed: ZeroDivisionError"):
            client._close_at_exit()


class WatchedNews(News):
    """Tells when somebody waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_waited_for = threading.Event()

    async def wait_until(self, deadline: float) -> bool:
        self.is_waited_for.set()
        return await super().wait_until(deadline)


def test_a_flush_ends_when_another_thread_closes_the_producer() -> None:
    with Admin("127.0.0.1:1"), ThreadPoolExecutor(1) as threads:  # the admin client keeps the loop running
        producer = Producer("127.0.0.1:1", max_block_ms=1000 * PATIENCE_S)
        producer._accepted = news = WatchedNews()
        producer.send("t", b"x")
        flush = threads.submit(producer.flush, PATIENCE_S)
        assert news.is_waited_for.wait(PATIENCE_S)
        with pytest.raises(FlushTimedOut):
            producer.close(timeout=0)
        with pytest.raises(ClientClosed, match="closed before all records were accepted"):
            flush.result()


def test_a_flush_of_a_producer_that_has_ended_does_not_wait() -> None:
    network = LaterBrokenNetwork(ZeroDivisionError("never"))
    producer = Producer("127.0.0.1:1", environment=ClientEnvironment(network), max_block_ms=1000 * PATIENCE_S)
    futures = [producer.send("t", b"x") for _ in range(2)]
    producer._call(trio.testing.wait_all_tasks_blocked, timeout_s=PATIENCE_S)
    producer._portal.post(producer._client.stop)
    with pytest.raises(ClientClosed):
        futures[1].result(PATIENCE_S)  # refused at the very end, behind the one that was being accepted
    with pytest.raises(ClientClosed, match="closed before all records were accepted"):
        producer.flush(PATIENCE_S)
    with pytest.raises(SendsFailed, match="1 record was not delivered"):
        producer.close()


def test_who_waits_for_room_goes_on_when_the_mailbox_is_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes until what was in it is accepted."""
    monkeypatch.setattr(sync_producer, "MAILBOX_RECORDS", 1)
    network = LaterBrokenNetwork(ZeroDivisionError("never"))
    producer = Producer("127.0.0.1:1", environment=ClientEnvironment(network), max_block_ms=1000 * PATIENCE_S)

    async def wait_for_room() -> None:
        producer.send("t", b"waits for the topic's metadata, once it is taken out of the mailbox")
        await producer._room(1, 2 * PATIENCE_S)

    producer._call(wait_for_room, timeout_s=PATIENCE_S)
    with suppress(FlushTimedOut):
        producer.close(0)


def test_no_time_is_enough_to_flush_and_close_where_nothing_is_under_way(cluster: FakeCluster) -> None:
    cluster.add_topic("t")
    producer = Producer(cluster.bootstrap)
    producer.flush(0)
    producer.send("t", b"x").result(PATIENCE_S)
    producer.flush(0)
    cluster.brokers[0].faults[0].append(Fault(hang=True))
    producer.send("t", b"never answered")
    with pytest.raises(FlushTimedOut):
        producer.flush(0)
    with pytest.raises(FlushTimedOut):
        producer.close(0)
    unused = Producer(cluster.bootstrap)
    unused.close(0)
    with pytest.raises(ClientClosed):
        unused.flush(0)


def test_a_thread_whose_close_was_overtaken_by_another_ones_is_content(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.add_topic("t")
    producer = Producer(cluster.bootstrap)
    call = producer._call

    def overtaken(*args: Any, **options: Any) -> Any:
        monkeypatch.setattr(producer, "_call", call)
        producer.close()
        return call(*args, **options)

    future = producer.send("t", b"x")
    monkeypatch.setattr(producer, "_call", overtaken)
    producer.close()
    assert future.result(0).offset == 0


def test_a_client_that_two_threads_close_gives_the_loop_back_once() -> None:
    with Admin("127.0.0.1:1") as other:
        client = SyncClient()
        with ThreadPoolExecutor(2) as threads:
            for _ in range(10):
                list(threads.map(lambda _: client.close(), range(2)))
        assert other._portal._thread.is_alive()
    assert not other._portal._thread.is_alive()


def test_clients_refuse_pickle_and_forks(cluster: FakeCluster) -> None:
    cluster.add_topic("t")
    with Producer(cluster.bootstrap) as producer, Consumer(cluster.bootstrap) as consumer:
        for client in (producer, consumer):
            with pytest.raises(TypeError, match="make one there"):
                pickle.dumps(client)
        results = multiprocessing.get_context("fork").SimpleQueue()
        process = multiprocessing.get_context("fork").Process(target=_in_child, args=(producer, consumer, results))
        process.start()
        process.join(PATIENCE_S)
        assert results.get() == ["before the process forked"] * 3
        assert process.exitcode == 0
        assert producer.send("t", b"still fine").result().offset == 0


def _in_child(producer: Producer, consumer: Consumer, results: multiprocessing.SimpleQueue[list[str]]) -> None:
    found = []
    for call in (lambda: producer.send("t", b"x"), lambda: producer.flush(), lambda: consumer.poll()):
        try:
            call()
        except ClientClosed as error:
            found.append("before the process forked" if "before the process forked" in str(error) else str(error))
    producer.close()
    consumer.close()
    results.put(found)


def run_script(text: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", text, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_a_script_that_forgets_to_close_still_delivers_and_ends(cluster: FakeCluster) -> None:
    cluster.add_topic("t")
    script = """
import sys
from strandline import Producer
producer = Producer(sys.argv[1], linger_ms=60_000)
producer.send("t", b"from a script")
"""
    process = run_script(script, cluster.bootstrap)
    assert process.communicate(timeout=PATIENCE_S) == ("", "")
    assert process.returncode == 0
    assert [record.value for record in cluster.logs[T0].records()] == [b"from a script"]


def test_ctrl_c_interrupts_a_waiting_call(cluster: FakeCluster) -> None:
    cluster.add_topic("t")
    script = """
import sys
from strandline import Consumer
from strandline.protocol.types import TopicPartition
with Consumer(sys.argv[1]) as consumer:
    consumer.assign([TopicPartition("t", 0)])
    try:
        print("polling", flush=True)
        consumer.poll(timeout_ms=600_000)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        consumer.poll(timeout_ms=1)
        print("usable", flush=True)
"""
    process = run_script(script, cluster.bootstrap)
    assert process.stdout is not None
    assert process.stdout.readline() == "polling\n"
    os.kill(process.pid, signal.SIGINT)
    assert process.communicate(timeout=PATIENCE_S) == ("interrupted\nusable\n", "")
    assert process.returncode == 0


@pytest.mark.parametrize("read", [lambda c: c.poll(1000 * PATIENCE_S), lambda c: c.fetch_batches(1000 * PATIENCE_S)])
def test_what_an_interrupted_thread_did_not_get_comes_again(
    cluster: FakeCluster, read: Callable[[Consumer], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.add_topic("t")
    wait = Crossing.wait

    def wait_and_be_interrupted(self: Crossing[Any], timeout_s: float | None) -> bool:
        assert wait(self, timeout_s)
        raise KeyboardInterrupt

    with Producer(cluster.bootstrap) as producer, Consumer(cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([T0])
        for number in range(3):
            producer.send("t", b"%d" % number).result(PATIENCE_S)
            with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
                patch.setattr(Crossing, "wait", wait_and_be_interrupted)
                read(consumer)
            assert consumer.position(T0) == number
            assert [record.value for record in consumer.poll(1000 * PATIENCE_S)[T0]] == [b"%d" % number]


def test_an_async_callback_is_refused_rather_than_never_awaited() -> None:
    async def callback(*_: object) -> None: ...

    with Consumer("127.0.0.1:1", group_id="g", default_api_timeout_ms=50) as consumer:
        consumer.commit_nowait({T0: 1}, on_done=callback)
        with pytest.raises(TypeError, match="AioConsumer takes async ones"):
            while True:
                consumer.poll(timeout_ms=100)
        assert consumer.poll() == {}
