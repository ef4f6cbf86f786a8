"""`strandline bench scenarios` against the fake cluster: what each row asks for, what is compared, faults, tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from strandline.cli.bench_load import Numbered, Windowed
from strandline.cli.bench_measure import Measurement, Result
from strandline.cli.bench_scenario_runs import DOWN_S, Blows, Landed, Outcome, room_bytes, window
from strandline.cli.bench_scenario_tables import LATENCY_FIGURES, READER_MS, SCENARIOS, SENDER_MS, Row, Scenario
from strandline.cli.bench_scenario_text import label, landed_text, note, ratios, table_of
from strandline.cli.cluster import EmbeddedCluster
from strandline.cli.cluster_overrides import checked
from strandline.cli.process import ProcessFailed
from strandline.cli.session import Session
from strandline.cli.wording import sized
from strandline.protocol.types import TopicPartition
from strandline.runtime.config.reading import load_broker_config
from unit.cli.conftest import NOW_MS, FakeCluster, Shell

OWN = f"bench-{NOW_MS}-"
ROOM_BYTES = 300 * 1024 * 1024


@pytest.fixture(autouse=True)
def four_brokers(cluster: FakeCluster) -> None:
    cluster.max_record_bytes = 1_000_000
    cluster.moves.racks = dict.fromkeys((1, 2, 3, 4))


def measured(records: int, seconds: float, failed: int = 0) -> Result:
    measurement = Measurement(1.0)
    measurement.note(records, records)
    if failed:
        measurement.failed(TimeoutError("late"), failed)
    return measurement.end(seconds)


# --- The printed tables ----------------------------------------------------------------------------------------


def test_the_tables_are_those_of_the_text() -> None:
    assert [(each.number, len(each.rows)) for each in SCENARIOS] == [(1, 12), (2, 7), (3, 9), (4, 5), (5, 3), (6, 1)]
    printed = [row.tps for each in SCENARIOS for row in each.rows if row.tps is not None]
    assert (len(printed), round(sum(printed), 1)) == (30, 740_153.5)
    assert len(SENDER_MS) == len(READER_MS) == len(LATENCY_FIGURES)
    assert all(row.min_insync is None or row.min_insync <= row.replicas <= 4 for each in SCENARIOS for row in each.rows)


def test_rows_are_compared_with_the_first_of_their_table() -> None:
    rows = SCENARIOS[1].rows[:3]
    outcomes = [Outcome(rows[0], result=measured(200, 1)), Outcome(rows[1], result=measured(100, 1))]
    outcomes.append(Outcome(rows[2], skipped="needs 3 brokers, here are 2"))
    assert ratios(outcomes) == [
        (1.0, 1.0),
        (pytest.approx(9701.6 / 9738.8), pytest.approx(0.5)),
        (pytest.approx(8999.7 / 9738.8), None),
    ]
    columns, shown, numbers = table_of(SCENARIOS[1], outcomes)
    assert columns == (*("replicas", "min.insync.replicas", "text TPS", "our TPS", "text ratio", "our ratio", "note"),)
    assert shown[1] == ("2", "2", "9,702", "100", "1.00", "0.50", "")
    assert shown[2] == ("3", "1", "9,000", "", "0.92", "", "not run: needs 3 brokers, here are 2")
    assert "note" not in numbers and "our TPS" in numbers


def test_without_a_first_row_there_is_nothing_to_compare_with() -> None:
    (row, *_) = SCENARIOS[3].rows
    assert ratios([Outcome(row, error="gone"), Outcome(row, result=measured(5, 1))]) == [(None, None)] * 2
    assert ratios([]) == []
    assert label(SCENARIOS[3], row) == "1" and label(SCENARIOS[0], SCENARIOS[0].rows[6]) == "0/1/N/A"
    assert label(SCENARIOS[4], SCENARIOS[4].rows[0]) == "2 killed, no retries"


@pytest.mark.parametrize(
    ("landed", "text", "fails"),
    [
        (Landed(9, 0, 0, 0), "all acknowledged, none twice", False),
        (Landed(9, 0, 2, 1), "all acknowledged, 2 twice, 1 that were not acknowledged", False),
        (Landed(0, 0, 0, 2), "0 acknowledged, none twice, 2 that were not acknowledged", True),
        (Landed(9, 3, 0, 0), "3 of 9 acknowledged are LOST, none twice", True),
        (Landed(9, 9, 0, 0, (2, 5)), "not known: partitions 2, 5 could not be read to their ends", True),
    ],
)
def test_what_landed_is_said_and_a_loss_is_a_failure(landed: Landed, text: str, fails: bool) -> None:
    outcome = Outcome(SCENARIOS[4].rows[0], result=measured(9, 1, failed=4), landed=landed, pause_s=1.25)
    assert (landed_text(landed), outcome.has_failed, note(outcome)) == (text, fails, "")
    (shown,) = table_of(SCENARIOS[4], [outcome])[1]
    assert shown[-6:] == (
        *("consistent: some landed, some failed", text, "NetworkException", "4 x TimeoutError", "1.2 s", ""),
    )


def test_records_that_fail_though_they_are_sent_again_are_a_failure() -> None:
    landed = Landed(9, 0, 0, 0)
    without, *retried = (Outcome(row, result=measured(9, 1, failed=4), landed=landed) for row in SCENARIOS[4].rows)
    assert not without.has_failed and all(each.has_failed for each in retried)


def test_records_that_fail_where_no_broker_was_killed_are_a_failure() -> None:
    outcome = Outcome(SCENARIOS[0].rows[0], result=measured(9, 1, failed=1))
    assert outcome.has_failed and note(outcome) == "failed: 1 x TimeoutError"
    assert not Outcome(SCENARIOS[0].rows[0], skipped="needs more").has_failed


# --- Pure parts of a run ---------------------------------------------------------------------------------------


def test_brokers_are_killed_once_and_started_once_later() -> None:
    cluster: Any = Killable()
    restarted = Blows(cluster, SCENARIOS[4].rows[2], 90)
    restarted.deal(29, 1.0)
    assert cluster.happened == [] and restarted.lacking == "all records were settled before a broker was killed"
    restarted.deal(30, 2.0)
    three = ["kill 2", "kill 3", "kill 4"]
    assert (cluster.happened, restarted.killed, restarted.is_restarted) == (three, 3, False)
    assert restarted.lacking == "all records were settled before the killed brokers were started again"
    restarted.deal(60, 2.0 + DOWN_S / 2)
    restarted.deal(89, 2.0 + DOWN_S)
    restarted.deal(89, 99.0)
    assert cluster.happened == [*three, "start 2", "start 3", "start 4"]
    assert (restarted.is_restarted, restarted.lacking) == (True, "")


def test_once_all_records_are_settled_brokers_are_left_alone() -> None:
    cluster: Any = Killable()
    blows = Blows(cluster, SCENARIOS[4].rows[2], 90)
    blows.deal(90, 1.0)
    assert (cluster.happened, blows.killed) == ([], 0)
    blows.deal(30, 2.0)
    blows.deal(90, 99.0)
    assert len(cluster.happened) == 3 and not blows.is_restarted


def test_of_few_records_few_are_under_way() -> None:
    assert [window(records) for records in (100, 5_000, 100_000, 10**8)] == [10, 500, 5_000, 5_000]


def test_no_more_records_are_under_way_than_there_is_room_for() -> None:
    settled = [0]
    schedule = Windowed(100, None, None, 8, 10, lambda: settled[0])
    assert [schedule.due(sent, 0.0) for sent in (0, 5, 10, 11)] == [8, 5, 0, 0]
    assert schedule.intended_s(5, 7.0) == 7.0 and schedule.intended_s(10, 7.0) > 7.0
    settled[0] = 95
    assert schedule.due(98, 0.0) == 2 and schedule.is_over(100, 0.0)


def test_a_numbered_value_is_known_again_and_others_are_not() -> None:
    what = Numbered(7, 40)
    [(key, value), (_, other)] = what.slice(3, 2)
    assert key is None and len(value) == 40
    assert (what.number_of(value), what.number_of(other)) == (3, 4)
    assert what.number_of(Numbered(8, 40).slice(3, 1)[0][1]) is None
    assert what.number_of(b"short") is what.number_of(None) is None


# --- The command -----------------------------------------------------------------------------------------------


def test_each_row_has_a_topic_of_its_own_as_the_text_has_it(shell: Shell, cluster: FakeCluster) -> None:
    created = recorded(shell)
    ran = shell("bench", "scenarios", "--scenario", "2", "--scale", "0.0005", "--output", "json")
    assert ran.code == 0, ran.err
    assert created == [
        (f"{OWN}{place}", 1, row.replicas, {"min.insync.replicas": str(row.min_insync)})
        for place, row in enumerate(SCENARIOS[1].rows, 1)
    ]
    assert cluster.topics == {} and cluster.settings["acks"] == "-1"
    assert {len(value) for _, _, value, _, _ in cluster.produced} == {1024}
    told = json.loads(ran.out)
    assert (told["_command"], told["brokers"], told["scale"], told["interrupted"]) == (
        *("bench.scenarios", 4, 0.0005, False),
    )
    (scenario,) = told["scenarios"]
    rows = scenario["rows"]
    assert [each["records"] for each in rows] == [500] * 7 and rows[0]["to_first"] == 1
    assert rows[6]["text_to_first"] == pytest.approx(9092.4 / 9738.8) and rows[6]["skipped"] is None


def test_rows_for_which_brokers_are_lacking_are_named_and_the_rest_is_run(shell: Shell, cluster: FakeCluster) -> None:
    cluster.moves.racks = dict.fromkeys((1, 2, 3))
    ran = shell("bench", "scenarios", "--scenario", "3", "--scenario", "5", "--scale", "0.0001")
    assert ran.code == 0, ran.err
    assert ran.out.count("not run: needs 4 brokers, here are 3") == 3 + 3
    assert "3 brokers at " in ran.out and "The text: More replicas are slower; acks=0" in ran.out
    cluster.moves.racks = dict.fromkeys((1, 2, 3, 4))
    ran = shell("bench", "scenarios", "--scenario", "5", "--scale", "0.0001")
    assert ran.out.count("not run: kills brokers, so it needs a cluster of its own: --embedded") == 3


def test_failed_records_are_named_and_end_with_exit_code_1(shell: Shell, cluster: FakeCluster) -> None:
    cluster.fail_after = 150
    ran = shell("bench", "scenarios", "--scenario", "4", "--scale", "0.0001")
    assert ran.code == 1 and "failed: 100 x BrokerError" in ran.out


def test_latencies_of_sender_and_reader_stand_beside_those_of_the_text(shell: Shell, cluster: FakeCluster) -> None:
    cluster.is_readable = True
    cluster.records[TopicPartition(f"{OWN}1", 0)] = []
    ran = shell("bench", "scenarios", "--scenario", "6", "--scale", "0.0001", "--output", "json")
    assert ran.code == 0, ran.err
    ((row,),) = (each["rows"] for each in json.loads(ran.out)["scenarios"])
    assert row["records"] == 100 and row["acknowledgement_ms"]["avg"] > 0 < row["latency_ms"]["p99.99"]
    assert row["text_acknowledgement_ms"]["average"] == 1.715
    cluster.records[TopicPartition(f"{OWN}1", 0)] = []
    lines = shell("bench", "scenarios", "--scenario", "6", "--scale", "0.0001").out.splitlines()
    assert [line.split()[1:4] for line in lines if line.startswith("sender")][1] == ["minimum", "1", "100.000"]


def test_ctrl_c_shows_what_was_measured_and_deletes_the_topic(
    shell: Shell, cluster: FakeCluster, tmp_path: Path
) -> None:
    created = recorded(shell, lambda names: interrupt() if len(names) == 3 else None)
    page = tmp_path / "s.html"
    ran = shell("bench", "scenarios", "--scale", "0.0001", "--page", str(page))
    assert (ran.code, len(created), cluster.topics) == (130, 3, {})
    assert sum(line.startswith("-1 ") for line in ran.out.splitlines()) == 2, "rows"
    assert "Six scenarios" in page.read_text() and "28,511" in page.read_text()
    assert "strandline: rows that were run: 2 of 37: interrupted\n" in ran.err
    assert "<td>2 of 37: interrupted</td>" in page.read_text()


def interrupt() -> None:
    raise KeyboardInterrupt


def recorded(shell: Shell, then: Callable[[list[Any]], None] = lambda names: None) -> list[Any]:
    """The topics that are made."""
    created: list[Any] = []
    make = shell.session.admin

    def admin(servers: str, **settings: Any) -> Any:
        found = make(servers, **settings)
        create = found.create_topic

        def create_topic(name: str, *rest: Any, **more: Any) -> None:
            created.append((name, *rest))
            create(name, *rest, **more)
            then(created)

        found.create_topic = create_topic
        return found

    shell.session.admin = admin
    return created


class Daemon:
    def __init__(self, name: str) -> None:
        self.name = name
        self.is_alive = True

    def last_log_line(self) -> str:
        return "no space left"


class Killable:
    """An embedded cluster of nothing; what dies with two brokers is up to `when_killed`."""

    bootstrap_servers = "own:1"

    def __init__(self, when_killed: Callable[[], None] = lambda: None, cannot_start: int = 0) -> None:
        self._cannot_start = cannot_start
        self.broker_ids = [1, 2, 3, 4]
        self.brokers = {each: Daemon(f"broker {each}") for each in self.broker_ids}
        self.zookeeper = SimpleNamespace(process=Daemon("ZooKeeper"))
        self.happened: list[str] = []
        self._when_killed = when_killed

    def kill_broker(self, broker_id: int) -> None:
        self.brokers[broker_id].is_alive = False
        self.happened.append(f"kill {broker_id}")
        self._when_killed()

    def start_broker(self, broker_id: int, *, wait: bool) -> None:
        if broker_id == self._cannot_start:
            raise ProcessFailed(f"broker {broker_id} ended with exit code 1")
        self.brokers[broker_id].is_alive = True
        self.happened.append(f"start {broker_id}")

    def wait_ready(self) -> None:
        self.happened.append("ready")


def with_a_cluster_of_its_own(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, cluster: Killable | None = None
) -> Killable:
    """The one that --embedded starts."""
    own = Killable() if cluster is None else cluster

    @contextmanager
    def temporary_cluster(brokers: int) -> Iterator[Any]:
        assert brokers == 4
        yield own

    monkeypatch.setattr(shell.session, "temporary_cluster", temporary_cluster)
    monkeypatch.setattr(shell.session, "temporary_room", lambda: ("/tmp", ROOM_BYTES))
    return own


def test_with_a_cluster_of_its_own_brokers_are_killed_and_what_was_acknowledged_is_read_again(
    shell: Shell, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[TopicPartition] = []

    def lose_one() -> None:
        for partition, log in cluster.records.items():
            if len(log) > 5 and partition not in lost:
                lost.append(partition)
                del log[5]

    own = with_a_cluster_of_its_own(shell, monkeypatch, Killable(lose_one))
    cluster.is_readable = True
    ran = shell("bench", "scenarios", "--embedded", "--scenario", "5", "--scale", "0.0001", "--output", "json")
    assert ran.code == 1, "three acknowledged records are lost"
    rows = json.loads(ran.out)["scenarios"][0]["rows"]
    assert [each["landed"] for each in rows] == [
        {"acknowledged": 100, "lost": 1, "doubled": 0, "unacknowledged": 0, "unread": []}
    ] * 3
    two = ["kill 3", "kill 4", "start 3", "start 4", "ready"]
    assert own.happened == [*two, *two, "kill 2", "kill 3", "kill 4", "start 2", "start 3", "start 4", "ready"]
    assert cluster.bootstrap == "own:1"
    assert [(each["killed"], each["restarted"]) for each in rows] == [(2, False), (2, False), (3, True)]


def test_brokers_are_killed_though_records_are_acknowledged_late(
    shell: Shell, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = with_a_cluster_of_its_own(shell, monkeypatch)
    acknowledged_in_pauses(shell)
    cluster.is_readable = True
    ran = shell("bench", "scenarios", "--embedded", "--scenario", "5", "--scale", "0.0001", "--output", "json")
    (scenario,) = json.loads(ran.out)["scenarios"]
    assert [each["killed"] for each in scenario["rows"]] == [2, 2, 3]
    assert own.happened[:3] == ["kill 3", "kill 4", "start 3"]


def test_a_row_whose_brokers_were_not_started_before_all_was_settled_has_failed(
    shell: Shell, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_a_cluster_of_its_own(shell, monkeypatch)
    cluster.is_readable = True
    shell.session.step_s = 0.001  # so that all is settled long before they would be started
    chosen = ("bench", "scenarios", "--embedded", "--scenario", "5", "--scale", "0.0001")
    ran = shell(*chosen, "--output", "json")
    *others, last = json.loads(ran.out)["scenarios"][0]["rows"]
    assert ran.code == 1 and [each["error"] for each in others] == [None, None]
    error = "all records were settled before the killed brokers were started again"
    assert (last["error"], last["killed"], last["restarted"], last["landed"]) == (error, 3, False, None)
    assert f"ended: {error}" in shell(*chosen).out


def acknowledged_in_pauses(shell: Shell) -> None:
    """Records are acknowledged once who sends them waits, or flushes."""
    under_way: list[tuple[Any, Any]] = []
    make, sleep = shell.session.producer, shell.session.sleep

    def settle(seconds: float | None = None) -> None:
        for late, outcome in under_way:
            late.set_result(outcome)
        under_way.clear()

    def send_later(send: Callable[..., Any], *args: Any, **more: Any) -> Any:
        under_way.append((late := Future[Any](), send(*args, **more).result()))
        return late

    def producer(servers: str, **settings: Any) -> Any:
        made = make(servers, **settings)
        made.send, made.flush = partial(send_later, made.send), settle
        return made

    def pause(seconds: float) -> None:
        settle()
        sleep(seconds)

    shell.session.producer, shell.session.sleep = producer, pause


def test_a_broker_that_cannot_be_started_again_ends_the_run(
    shell: Shell, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_a_cluster_of_its_own(shell, monkeypatch, Killable(cannot_start=3))
    cluster.is_readable = True
    chosen = ("--scenario", "4", "--scenario", "5", "--scenario", "6")
    ran = shell("bench", "scenarios", "--embedded", *chosen, "--scale", "0.0001", "--output", "json")
    assert ran.code == 1
    fourth, fifth = (each["rows"] for each in json.loads(ran.out)["scenarios"])
    assert all(each["records"] == 100 for each in fourth)
    ended = "broker 3 ended: no space left; 300.0 MiB are free in /tmp"
    assert [each["error"] for each in fifth] == [ended]
    assert f"strandline: rows that were run: 6 of 9: {ended}\n" in ran.err


def test_a_member_that_ends_by_itself_ends_the_run_while_its_row_still_waits(
    shell: Shell, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = with_a_cluster_of_its_own(shell, monkeypatch)
    cluster.waiting = 1  # flushes time out, for ever
    pause = shell.session.monotonic

    def end() -> float:
        own.zookeeper.process.is_alive = shell.session.clock < 5
        return pause()

    monkeypatch.setattr(shell.session, "monotonic", end)
    ran = shell("bench", "scenarios", "--embedded", "--scenario", "4", "--scale", "0.0001")
    assert ran.code == 1
    assert ran.err.endswith("1 of 5: ZooKeeper ended: no space left; 300.0 MiB are free in /tmp\n")
    assert len(cluster.topics) == 1, "nobody is asked to delete it"


def test_without_room_for_the_largest_rows_nothing_is_started(
    shell: Shell, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_a_cluster_of_its_own(shell, monkeypatch)
    chosen = ("bench", "scenarios", "--embedded", "--scenario", "2", "--scale")
    assert shell(*chosen, "0.0001").err == (
        "starting 4 brokers, which need 265.4 MiB in /tmp, where 300.0 MiB are free\nstopping the brokers\n"
    )
    ran = shell(*chosen, "0.01")
    assert (ran.code, ran.err) == (
        1,
        "strandline: 4 brokers need 350.3 MiB in /tmp, where 300.0 MiB are free; give a smaller --scale, or name a "
        "larger folder in $TMPDIR\n",
    )


def test_how_much_room_is_needed_is_told_before(shell: Shell) -> None:
    told = " ".join(shell("bench", "scenarios", "--help").out.split())
    room = [sized(room_bytes(SCENARIOS, scale)) for scale in (0.1, 1)]
    assert "They need {} there at --scale 0.1, {} at 1;".format(*room) in told


def test_a_temporary_cluster_unlinks_deleted_topics_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for change in ("start", "stop"):
        monkeypatch.setattr(EmbeddedCluster, change, lambda cluster, **_: None)
    with Session().temporary_cluster(4) as cluster:
        assert checked(cluster.properties, cluster.own_properties(1)) == []
        config = load_broker_config({**cluster.own_properties(1), **cluster.properties})
        assert config.log_segment_delete_delay_ms == 0


def test_a_cluster_of_its_own_and_another_one_exclude_each_other(shell: Shell) -> None:
    for other in (("-b", "localhost:9092"), ("--data", "folder")):
        ran = shell("bench", "scenarios", "--embedded", *other)
        assert ran.code == 2 and "--embedded starts a cluster of its own" in ran.err


def test_the_page_has_a_table_and_both_shapes_for_each_scenario() -> None:
    from strandline.cli.bench_scenario_page import scenarios_page

    scenario: Scenario = SCENARIOS[2]
    rows: tuple[Row, ...] = scenario.rows
    outcomes = [Outcome(row, result=measured(100 + place, 1)) for place, row in enumerate(rows)]
    text = scenarios_page([(scenario, outcomes), (SCENARIOS[5], [Outcome(SCENARIOS[5].rows[0], error="a < b")])], {})
    assert text.count("<svg") == 2 and "as printed, to its first row" in text
    assert "76,696" in text and "ended: a &lt; b" in text
