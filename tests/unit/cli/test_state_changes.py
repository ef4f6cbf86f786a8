"""`strandline state-changes`: lines of several brokers as one, what is chosen of them, what is said to be missing."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from strandline.cli import state_changes as command
from strandline.cli.state_change_text import event_text
from strandline.protocol.history.lines import Event, Kind


def line(second: int, event: str, broker_id: int = 1, **fields: Any) -> str:
    moment = f"1970-01-01T00:{second // 60:02}:{second % 60:02}.000Z"
    return json.dumps({"broker_id": broker_id, **fields, "event": event, "timestamp": moment}) + "\n"


def state(partition: int, leader: int, epoch: int, isr: list[int], topic: str = "clicks") -> dict[str, Any]:
    known = {"topic": topic, "topic_id": f"id of {topic}", "partition": partition, "replicas": [1, 2]}
    return {**known, "leader": leader, "leader_epoch": epoch, "zk_version": epoch, "isr": isr}


PACKED = {
    "topic_ids": {"clicks": "id of clicks", "orders": "id of orders"},
    "states": {"clicks": ["1 2 1 1 2 1,2"], "orders": ["0 2 0 0 2 2"]},
    "controller_epoch": 2,
    "why": "broker 1 is gone",
}
ONE = [
    line(0, "broker registered", 1, broker_epoch=5),
    line(1, "elected controller", 1, controller_epoch=1),
    line(10, "partition state changed", 1, **state(0, 1, 0, [1, 2]), controller_epoch=1),
    line(10, "partition state changed", 1, **state(1, 1, 0, [1, 2]), controller_epoch=1),
    line(11, "became leader", 1, **state(0, 1, 0, [1, 2])),
]
TWO = [
    line(11, "became follower", 2, **state(0, 1, 0, [1, 2])),
    line(36, "broker failed", 2, broker=1, broker_epoch=5, session_timeout_ms=6000),
    line(37, "elected controller", 2, controller_epoch=2),
    line(38, "partition states changed", 2, **PACKED),
    line(39, "partition state changed", 2, **state(0, 2, 1, [2]), controller_epoch=2),
    line(40, "broker alive", 2),
]
SHOWN = [
    "1970-01-01 00:00:00.000 broker 1: broker 1 started",
    "1970-01-01 00:00:01.000 broker 1: controller elected, controller epoch 1",
    "1970-01-01 00:00:10.000 broker 1: clicks-0: the controller wrote: leader 1, epoch 0, version 0, ISR 1,2 of 1,2, "
    "controller epoch 1",
    "1970-01-01 00:00:10.000 broker 1: clicks-1: the controller wrote: leader 1, epoch 0, version 0, ISR 1,2 of 1,2, "
    "controller epoch 1",
    "1970-01-01 00:00:11.000 broker 1: clicks-0: it leads: leader 1, epoch 0, version 0, ISR 1,2 of 1,2",
    "1970-01-01 00:00:11.000 broker 2: clicks-0: it follows: leader 1, epoch 0, version 0, ISR 1,2 of 1,2",
    "1970-01-01 00:00:36.000 broker 2: broker 1 is gone, 6.0 s late at most",
    "1970-01-01 00:00:37.000 broker 2: controller elected, controller epoch 2",
    "1970-01-01 00:00:38.000 broker 2: clicks-1: the controller wrote: leader 2, epoch 1, version 1, ISR 2 of 1,2, "
    "controller epoch 2, broker 1 is gone",
    "1970-01-01 00:00:38.000 broker 2: orders-0: the controller wrote: leader 2, epoch 0, version 0, ISR 2 of 2, "
    "controller epoch 2, broker 1 is gone",
    "1970-01-01 00:00:39.000 broker 2: clicks-0: the controller wrote: leader 2, epoch 1, version 1, ISR 2 of 1,2, "
    "controller epoch 2",
]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    for number in (1, 2):
        (tmp_path / f"broker-{number}").mkdir()
        (tmp_path / f"broker-{number}" / "controller.log").touch()
    (tmp_path / "broker-1" / "state-change.log.1.gz").write_bytes(gzip.compress("".join(ONE[:3]).encode()))
    (tmp_path / "broker-1" / "state-change.log").write_text("".join(ONE[3:]))
    (tmp_path / "broker-2" / "state-change.log").write_text("".join(TWO))
    return tmp_path


def test_the_lines_of_all_brokers_come_by_time_rolled_and_packed_ones_included(shell: Any, logs: Path) -> None:
    ran = shell("state-changes", str(logs))
    assert (ran.code, ran.err, ran.out.splitlines()) == (0, "", SHOWN)
    by_option = shell("state-changes", "--logs", str(logs / "broker-1"), "--logs", str(logs / "broker-2"))
    assert by_option.out == ran.out


@pytest.mark.parametrize(
    ("options", "places"),
    [
        (("--topic", "clicks", "--partition", "0"), [2, 4, 5, 10]),
        (("--topics", "or.*"), [9]),
        (("--partitions", "1-3"), [3, 8]),
        (("--from", "1970-01-01T00:00:11Z", "--to", "1970-01-01T00:00:38Z"), [4, 5, 6, 7]),
        (("--topic", "clicks", "--since", "1970-01-01T00:00:38.500Z"), [10]),
        (("--topic", "clicks", "--since", "1970-01-01T00:00:39.500Z"), []),
    ],
)
def test_lines_are_chosen_by_time_topic_and_partition(
    shell: Any, logs: Path, options: tuple[str, ...], places: list[int]
) -> None:
    ran = shell("state-changes", str(logs), *options)
    assert (ran.code, ran.out.splitlines()) == (0, [SHOWN[place] for place in places])


def test_programs_get_an_object_a_line_and_what_was_missing_in_the_end(shell: Any, logs: Path) -> None:
    ran = shell("state-changes", str(logs), "--output", "json")
    *events, last = map(json.loads, ran.out.splitlines())
    assert (ran.code, len(events), last["_command"]) == (0, len(SHOWN), "state-changes")
    assert events[8] == {
        "kind": "written",
        "time_ms": 38_000,
        "broker_id": 2,
        "topic": "clicks",
        "topic_id": "id of clicks",
        "partition": 1,
        "leader": 2,
        "leader_epoch": 1,
        "zk_version": 1,
        "isr": [2],
        "replicas": [1, 2],
        "controller_epoch": 2,
        "why": "broker 1 is gone",
        "file": str(logs / "broker-2" / "state-change.log"),
        "line": 4,
    }
    assert (last["lines"], last["shown"], last["damaged_lines"], last["gaps"]) == (11, 11, 0, [])


def test_damaged_lines_are_counted_and_named_and_the_rest_is_merged(shell: Any, logs: Path) -> None:
    file = logs / "broker-2" / "state-change.log"
    file.write_text(TWO[0] + '{"event":"became lea\n' + "".join(TWO[1:]) + "\x1b[31mnonsense\n" * 30)
    ran = shell("state-changes", str(logs))
    assert (ran.code, ran.out.splitlines()) == (0, SHOWN)
    told = ran.err.splitlines()
    assert told[0].startswith(f"strandline: warning: {file}:2: damaged line, passed over: ")
    assert told[-1] == "strandline: warning: 31 damaged lines, of which the first 20 are named"
    assert len(told) == 21 and "\x1b" not in ran.err
    last = json.loads(shell("state-changes", str(logs), "--output", "json").out.splitlines()[-1])
    assert last["damaged_lines"] == 31 and last["damaged"][0]["line"] == 2


def test_a_gap_in_the_logs_is_named_with_the_lines_around_it(shell: Any, logs: Path) -> None:
    file = logs / "broker-2" / "state-change.log"
    later = line(45, "isr changed", 2, **{**state(0, 2, 1, [2, 1]), "zk_version": 4})
    file.write_text("".join(TWO) + later + line(600, "broker alive", 2))
    ran = shell("state-changes", str(logs))
    assert ran.code == 0
    assert ran.err.splitlines() == [
        f"strandline: warning: gap: clicks-0: no log has znode versions 2 to 3, between {file}:5 and {file}:7",
        f"strandline: warning: gap: broker 2: no line for 555 s, though it writes one a minute, between {file}:7 and "
        f"{file}:8",
    ]
    states, silence = json.loads(shell("state-changes", str(logs), "--output", "json").out.splitlines()[-1])["gaps"]
    assert (states["topic"], states["partition"], states["first"], states["last"]) == ("clicks", 0, 2, 3)
    assert states["before"] == {"time_ms": 39_000, "broker_id": 2, "file": str(file), "number": 5}
    assert (silence["broker_id"], "topic" in silence) == (2, False)
    assert shell("state-changes", str(logs), "--until", "1970-01-01T00:00:20Z").err == ""


def test_files_that_are_cut_or_missing_are_named(shell: Any, logs: Path) -> None:
    packed = logs / "broker-1" / "state-change.log.1.gz"
    packed.rename(logs / "broker-1" / "state-change.log.2.gz")
    cut = logs / "broker-1" / "state-change.log.2.gz"
    cut.write_bytes(cut.read_bytes()[:-9])
    told = shell("state-changes", str(logs)).err
    assert f"{cut} is cut or damaged and was read as far as it goes" in told
    assert f"{logs / 'broker-1' / 'state-change.log.1'} is missing: what it would tell is left out" in told


def test_the_page_draws_leaders_and_isrs_over_time(shell: Any, logs: Path) -> None:
    page = logs / "changes.html"
    assert shell("state-changes", str(logs), "--topic", "clicks", "--page", str(page)).code == 0
    text = page.read_text()
    assert "Who led" in text and "In-sync replicas" in text
    assert "clicks-0: broker 2, epoch 1, since 1970-01-01 00:00:39.000" in text
    assert "clicks-0: 1 of 2 in sync (2), since 1970-01-01 00:00:39.000" in text and "orders" not in text


def test_changes_outside_of_the_range_do_not_count_towards_what_can_be_drawn(
    shell: Any, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "MOST_EVENTS_DRAWN", 20)
    before = [line(60 + second, "isr changed", 2, **state(0, 2, 1, [2], "clicks")) for second in range(100)]
    behind = [line(300 + second, "isr changed", 2, **state(0, 2, 1, [2], "clicks")) for second in range(100)]
    (logs / "broker-2" / "state-change.log").write_text("".join([*TWO, *before, line(200, "broker alive", 2), *behind]))
    page = logs / "changes.html"
    since, until = "1970-01-01T00:03:00Z", "1970-01-01T00:04:00Z"
    ran = shell("state-changes", str(logs), "--since", since, "--until", until, "--page", str(page))
    assert ran.code == 0, ran.err
    assert "clicks-0: broker 2, epoch 1, 1970-01-01 00:03:00.000 to 1970-01-01 00:04:00.000" in page.read_text()
    assert shell("state-changes", str(logs), "--page", str(page)).code == 1


def test_a_page_of_more_than_can_be_drawn_is_refused(shell: Any, logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "MOST_EVENTS_DRAWN", 3)
    ran = shell("state-changes", str(logs), "--page", str(logs / "changes.html"))
    assert (ran.code, ran.err.count("\n")) == (1, 1) and "choose --topics, --partitions or a part" in ran.err
    (logs / "broker-1" / "controller.log").unlink()
    first, _ = shell("state-changes", str(logs), "--page", str(logs / "changes.html")).err.splitlines()
    assert "controller.log is missing" in first
    (logs / "broker-1" / "controller.log").touch()
    assert not (logs / "changes.html").exists()
    assert shell("state-changes", str(logs), "--topic", "orders", "--page", str(logs / "changes.html")).code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--topic", "payments"), "no line of these logs is of what --topics 'payments'"),
        (("--since", "1970-01-01T00:00:50Z"), "ask for a part of that (--since, --until)"),
    ],
)
def test_where_nothing_is_found_what_could_not_be_read_is_named(
    shell: Any, logs: Path, arguments: tuple[str, ...], said: str
) -> None:
    """It may have what was asked for, so that is no wrong use."""
    file = logs / "broker-2" / "state-change.log"
    file.write_text('{"event":"became lea\n' + "".join(TWO))
    (logs / "broker-1" / "controller.log").unlink()
    ran = shell("state-changes", str(logs), *arguments)
    damaged, missing, last = ran.err.splitlines()
    assert (ran.code, ran.out) == (1, "") and said in last
    assert f"{file}:1: damaged line" in damaged and "controller.log is missing" in missing


def test_the_time_that_logs_tell_of_is_that_of_their_own_lines(shell: Any, tmp_path: Path) -> None:
    (tmp_path / "late.log").write_text(line(30, "broker alive", 1) + line(90, "broker alive", 1))
    ran = shell("state-changes", str(tmp_path / "late.log"), "--until", "1970-01-01T00:00:10Z")
    assert "tell of 1970-01-01 00:00:30.000 to 1970-01-01 00:01:30.000 UTC" in ran.err


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("--topic", "nothing.*"), 2, "no line of these logs is of what --topics 'nothing.*' asks for"),
        (("--partition", "77"), 2, "is of what --partitions 77 asks for"),
        (("--topic", "("), 2, "--topics '(' is no pattern"),
        (("--partition", "x"), 2, "give for example 0,3-5"),
        (("--partition", "0,5-3"), 2, "5-3 ends before it begins; give 3-5"),
        (("--partition", ","), 2, "names no partition"),
        (("--since", "soon"), 2, "--since: time 'soon' is not understood"),
        (("--since", "2000", "--until", "1000"), 2, "ends before it begins"),
        (("--logs", "/nowhere/at/all"), 2, "does not exist"),
        (
            ("--since", "1970-01-01T00:00:50Z"),
            2,
            "the logs tell of 1970-01-01 00:00:00.000 to 1970-01-01 00:00:40.000 UTC; ask for a part of that",
        ),
    ],
)
def test_what_is_asked_for_wrongly_is_one_line(
    shell: Any, logs: Path, arguments: tuple[str, ...], code: int, told: str
) -> None:
    ran = shell("state-changes", str(logs), *arguments)
    assert (ran.code, ran.out, ran.err.count("\n")) == (code, "", 1) and told in ran.err


def test_files_that_are_no_change_logs_are_refused(shell: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "there is no change log to read" in shell("state-changes", str(tmp_path / "empty")).err
    (tmp_path / "text").write_text("a\nb\n")
    ran = shell("state-changes", str(tmp_path / "text"))
    first, second, last = ran.err.splitlines()
    assert ran.code == 1 and f"{tmp_path}/text:1: damaged line" in first and "text:2" in second
    assert "of the 2 lines in 1 file none is one of a change log" in last


def test_who_lived_when_a_controller_took_over_is_shown() -> None:
    acts = Event(Kind.ACTING, 41_000, 2, controller_epoch=2, brokers=(2, 3))
    assert event_text(acts) == "1970-01-01 00:00:41.000 broker 2: controller acts, controller epoch 2, found alive: 2,3"


def every_minute(broker_id: int, first: int, last: int) -> str:
    return "".join(line(60 * minute, "broker alive", broker_id) for minute in range(first, last + 1))


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """Logs of three brokers over 20 minutes; that of broker 1, which leads, ends after 5."""
    known = {**state(0, 1, 0, [1, 2, 3]), "replicas": [1, 2, 3]}
    for number, until in ((1, 5), (2, 20), (3, 20)):
        folder = tmp_path / f"broker-{number}"
        folder.mkdir()
        (folder / "controller.log").touch()
        told = line(0, "broker registered", number, broker_epoch=7) + line(1, "became follower", number, **known)
        (folder / "state-change.log").write_text(told + every_minute(number, 1, until))
    return tmp_path


def last_object(ran: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ran.out.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    "options", [(), ("--topic", "clicks"), ("--partition", "0", "--since", "1970-01-01T00:10:00Z")]
)
def test_a_log_that_ends_long_before_the_others_is_named(shell: Any, three: Path, options: tuple[str, ...]) -> None:
    ran = shell("state-changes", str(three), *options)
    one, three_log = three / "broker-1" / "state-change.log", three / "broker-3" / "state-change.log"
    assert (ran.code, ran.err.splitlines()) == (
        0,
        [
            "strandline: warning: gap: broker 1: no line for 900 s, though it writes one a minute, "
            f"after {one}:7, and no log says that it stopped or is gone, up to {three_log}:22"
        ],
    )
    [gap] = last_object(shell("state-changes", str(three), "--output", "json"))["gaps"]
    assert (gap["broker_id"], gap["before"]["time_ms"], gap["behind"]["time_ms"]) == (1, 300_000, 1_200_000)


def test_a_range_that_ends_before_a_log_does_has_no_gap_there(shell: Any, three: Path) -> None:
    assert shell("state-changes", str(three), "--until", "1970-01-01T00:04:00Z").err == ""


@pytest.mark.parametrize(
    ("log", "told"),
    [
        ("broker-1", line(301, "broker stopped", 1, broker_epoch=7)),
        ("broker-2", line(306, "broker failed", 2, broker=1, broker_epoch=7, session_timeout_ms=6000)),
        ("broker-3", line(301, "contact lost", 3, leader=1)),
        (
            "broker-3",
            line(10, "controller", 1, controller_epoch=1) + line(310, "elected controller", 3, controller_epoch=2),
        ),
        (
            "broker-3",
            line(10, "elected controller", 1, controller_epoch=1)
            + line(310, "elected controller", 3, controller_epoch=2),
        ),
    ],
)
def test_who_stopped_or_is_gone_has_no_gap(shell: Any, three: Path, log: str, told: str) -> None:
    with (three / log / "controller.log").open("a") as file:
        file.write(told)
    assert shell("state-changes", str(three)).err == ""


def test_who_was_gone_and_is_back_is_named_where_its_log_ends(shell: Any, three: Path) -> None:
    failed = line(306, "broker failed", 2, broker=1, broker_epoch=7, session_timeout_ms=6000)
    back = line(320, "broker started", 2, broker=1, broker_epoch=9)
    (three / "broker-2" / "controller.log").write_text(failed + back)
    assert "gap: broker 1: no line for 900 s" in shell("state-changes", str(three)).err


def test_brokers_without_any_log_are_named_in_one_line(shell: Any, three: Path) -> None:
    only = three / "broker-2"
    ran = shell("state-changes", str(only))
    assert (ran.code, ran.err.splitlines()) == (
        0,
        [
            "strandline: warning: gap: no log has a line of brokers 1, 3, though others name them as leaders or "
            f"replicas, first {only}/state-change.log:2"
        ],
    )
    assert last_object(shell("state-changes", str(only), "--output", "json"))["missing_brokers"] == [1, 3]
    assert "of brokers 1, 3" in shell("state-changes", str(only), "--since", "1970-01-01T00:10:00Z").err


def test_of_a_broker_without_a_log_only_what_is_asked_for_counts(shell: Any, three: Path) -> None:
    """Broker 3 has moved away from clicks, and of orders nothing is asked."""
    both = {"replicas": [1, 2], "isr": [1, 2], "zk_version": 1}
    moved = line(600, "became follower", 2, **{**state(0, 1, 0, [1, 2]), **both})
    other = line(700, "became follower", 2, **{**state(0, 4, 0, [4], "orders"), "replicas": [4]})
    with (three / "broker-2" / "controller.log").open("a") as file:
        file.write(moved + other)
    logs = three / "broker-2"
    for options, missing in ((("-t", "clicks"), [1, 3]), (("-t", "clicks", "--since", "1970-01-01T00:11:00Z"), [1])):
        ran = shell("state-changes", str(logs), "--output", "json", *options)
        assert last_object(ran)["missing_brokers"] == missing
    assert last_object(shell("state-changes", str(logs), "--output", "json"))["missing_brokers"] == [1, 3, 4]
