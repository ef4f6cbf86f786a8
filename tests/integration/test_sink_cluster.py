"""What exactly once asks of a cluster (`once.SinkCluster`), of a real one: it answers as the one in memory does."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest

from strandline import Admin, Consumer, Producer
from strandline.cli.cluster import EmbeddedCluster
from strandline.client.accumulator import ToSend
from strandline.protocol.types import NO_TOPIC_ID, TopicPartition
from strandline.spark_connector.errors import RowsChanged, SupersededWrite, WrittenRowsGone
from strandline.spark_connector.options.sink_options import parse_sink_options
from strandline.spark_connector.writing.cluster import SinkClusterClient
from strandline.spark_connector.writing.division import check_tasks
from strandline.spark_connector.writing.identity import TaskIdentity
from strandline.spark_connector.writing.once import FoundTasks, OnceWriter
from strandline.spark_connector.writing.placing import placed
from support.sink_rows import sink_rows

pytestmark = pytest.mark.spark  # beside the tests whose cluster it shares

PARTITIONS = 3
NUMBERS = itertools.count()


class Site:
    """One topic, and attempts to write to it."""

    def __init__(self, servers: str, topic: str) -> None:
        self.servers, self.topic = servers, topic
        self.me = TaskIdentity(f"write.{topic}", 7, 0)
        self.partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]

    def client(self, identity: TaskIdentity) -> SinkClusterClient:
        options = parse_sink_options({"servers": self.servers, "topic": self.topic, "kafka.batch.size": "300"})
        return SinkClusterClient(options, identity, has_timestamps=False)

    def write(self, rows: Sequence[ToSend], identity: TaskIdentity | None = None, chunk: int = 50) -> int:
        """To its end; how many rows were found in the topic."""
        with closing(self.client(identity or self.me)) as cluster:
            writer = OnceWriter(cluster, identity or self.me, "run", has_timestamps=False)
            for begin in range(0, len(rows), chunk):
                writer.write(placed(sink_rows(self.topic, rows[begin : begin + chunk]), writer.room_of))
            writer.finish()
            return writer.found_rows

    def others_write(self) -> None:
        with Producer(self.servers) as producer:
            for partition in self.partitions:
                producer.send_many(self.topic, [(b"other", b"%d" % number) for number in range(30)], partition[1])

    def stored(self) -> Counter[ToSend]:
        """Those rows that are not `others_write`'s."""
        found: Counter[ToSend] = Counter()
        with Consumer(self.servers, auto_offset_reset="earliest") as consumer:
            ends = consumer.end_offsets(self.partitions)
            consumer.assign(self.partitions)
            while any(consumer.position(each) < ends[each] for each in self.partitions):
                for records in consumer.poll(timeout_ms=1_000).values():
                    found.update((record.key, record.value) for record in records if record.key != b"other")
        return found


@pytest.fixture
def site(spark_cluster: EmbeddedCluster) -> Iterator[Site]:
    name = f"sink-cluster-{next(NUMBERS)}"
    with Admin(spark_cluster.bootstrap_servers) as admin:
        admin.create_topic(name, PARTITIONS, 3)
        yield Site(spark_cluster.bootstrap_servers, name)
        admin.delete_topic(name)


def rows(count: int) -> list[ToSend]:
    """Some with a key, some equal."""
    return [(b"k%d" % (n % 7) if n % 3 else None, b"v%d" % (n % (count - count // 5))) for n in range(count)]


def test_attempts_that_live_side_by_side_leave_each_row_once(site: Site) -> None:
    """Each in an order of its own, so that all meet at the partitions' numbers."""
    site.others_write()
    given = rows(3_000)
    orders = [given, given[::-1], given[1_000:] + given[:1_000], sorted(given, key=lambda row: hash(row[1]))]
    errors: list[BaseException] = []

    def attempt(order: Sequence[ToSend], chunk: int) -> None:
        try:
            site.write(order, chunk=chunk)
        except BaseException as error:
            errors.append(error)

    threads = [
        threading.Thread(target=attempt, args=given) for given in zip(orders, (31, 111, 1_000, 3_000), strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert site.stored() == Counter(given)


def test_a_write_that_is_repeated_finds_its_rows_behind_and_before_a_mark_that_was_set_late(site: Site) -> None:
    given = rows(500)
    site.others_write()
    site.write(given[:200])
    site.others_write()
    assert site.write(given) == 200
    with closing(site.client(site.me)) as cluster:
        marks = cluster.marks(site.partitions)
        cluster.set_marks({at: marks[at]._replace(end_offset=end) for at, end in cluster.ends(site.partitions).items()})
    assert site.write(given[::-1]) == 500
    assert site.stored() == Counter(given)
    with pytest.raises(RowsChanged):
        site.write(given[1:])


def test_a_later_version_shuts_out_an_earlier_one(site: Site) -> None:
    given = rows(50)
    site.write(given)
    assert site.write(given, TaskIdentity(site.me.scope, 8, 0)) == 0
    with pytest.raises(SupersededWrite):
        site.write(given)
    assert site.stored() == Counter(given * 2)


@pytest.mark.parametrize("are_forgotten", [False, True])
def test_rows_that_were_deleted_are_an_error(site: Site, are_forgotten: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where leaders are not believed any more."""
    if are_forgotten:
        monkeypatch.setattr(SinkClusterClient, "remembered_ms", lambda _: 0)
        monkeypatch.setattr(SinkClusterClient, "written", lambda _, partitions: dict.fromkeys(partitions))
    given = rows(300)
    site.write(given)
    assert site.write(given) == 300
    with Admin(site.servers) as admin:
        admin.delete_records(dict.fromkeys(site.partitions, -1))
    with pytest.raises(WrittenRowsGone):
        site.write(given)


def test_who_wrote_is_told_by_leaders_and_by_the_log(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.others_write()
    for task in (0, 5):
        site.write(rows(50), TaskIdentity(site.me.scope, 7, task))
    with closing(site.client(site.me)) as cluster:
        check_tasks(cluster, site.me, {0: [site.topic], 5: [site.topic]})
        for is_forgotten in (False, True):
            if is_forgotten:
                monkeypatch.setattr(cluster, "remembered_ms", lambda: -1)
                monkeypatch.setattr(cluster, "tasks_known", lambda _: set())
            with pytest.raises(RowsChanged, match="task 5"):
                check_tasks(cluster, site.me, {0: [site.topic]})


def test_rows_that_went_to_another_topic_the_last_time_are_noticed_until_it_is_deleted(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Marks that are left of it are not those of a topic that gets its name later, and the question creates none."""
    other = Site(site.servers, f"{site.topic}-other")
    with Admin(site.servers) as admin, closing(site.client(site.me)) as cluster:
        admin.create_topic(other.topic, PARTITIONS, 3)
        other.write(rows(50), site.me)
        assert cluster.marks(None).keys() == set(other.partitions)
        site.write(rows(50))
        marks = cluster.marks(None)
        assert marks.keys() == set(other.partitions + site.partitions)
        with pytest.raises(RowsChanged, match=f"wrote rows to '{other.topic}' and has none of it now"):
            check_tasks(cluster, site.me, {0: [site.topic]})
        monkeypatch.setattr(cluster, "marks", lambda _: marks)
        admin.delete_topic(other.topic)
        check_tasks(cluster, site.me, {0: [site.topic]})
        assert cluster.topic_id(other.topic) is None
        admin.create_topic(other.topic, 1, 3)
        monkeypatch.setattr(cluster, "remembered_ms", lambda: -1)
        monkeypatch.setattr(cluster, "tasks_in_log", lambda at, *_: {site.topic: FoundTasks({0}, 0, False)}[at.topic])
        check_tasks(cluster, site.me, {0: [site.topic]})
        admin.delete_topic(other.topic)


def test_a_producer_is_opened_only_for_a_topic_that_does_not_exist(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs a connection, for each topic of each task."""
    with closing(site.client(site.me)) as client, Admin(site.servers) as admin:
        with monkeypatch.context() as without_producers:
            without_producers.delattr("strandline.spark_connector.writing.cluster.Producer")
            assert client.partitions_count(site.topic) == PARTITIONS
            admin.create_partitions(site.topic, PARTITIONS + 1)
            assert client.partitions_count(site.topic) == PARTITIONS + 1
        assert client.partitions_count(f"{site.topic}-new") == 1
        admin.delete_topic(f"{site.topic}-new")


def test_a_topic_that_the_first_row_creates_is_known_by_its_id(spark_cluster: EmbeddedCluster) -> None:
    """Else its marks would go on to hold once it is deleted and created anew."""
    for number in range(5):
        site = Site(spark_cluster.bootstrap_servers, f"sink-created-{number}")
        site.partitions = [TopicPartition(site.topic, 0)]
        assert site.write(rows(10)) == 0
        with closing(site.client(site.me)) as cluster:
            assert cluster.marks(site.partitions)[site.partitions[0]].topic_id != NO_TOPIC_ID
            assert cluster.topic_id(site.topic) != NO_TOPIC_ID
        with Admin(site.servers) as admin:
            admin.delete_topic(site.topic)
