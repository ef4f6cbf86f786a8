"""What has moved between two looks at a topic, and how the table is drawn."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from strandline.cli.watch_seen import Change, PartitionSeen, TopicSeen, Watched
from strandline.cli.watch_shown import chosen, drawn

P = PartitionSeen(1, 4, (1, 2, 3), (1, 2, 3), 100, {1: 100, 2: 100, 3: 90})


def seen(time_ms: int, *partitions: PartitionSeen, topic_id: str = "A", problem: str = "") -> TopicSeen:
    return TopicSeen(time_ms, "clicks", topic_id, dict(enumerate(partitions)), problem)


def texts(changes: list[Change]) -> list[str]:
    return [f"{each.name}: {each.text}" for each in changes]


def test_the_first_look_tells_everything_and_an_equal_one_nothing() -> None:
    watched = Watched()
    assert texts(watched.take(seen(0, P))) == [
        "clicks-0: leader 1, epoch 4, ISR 1,2,3 of 1,2,3, HW 100, LEO 1:100 2:100 3:90"
    ]
    assert watched.take(seen(1, P)) == []


def test_what_moved_is_told_with_what_was_before() -> None:
    watched = Watched()
    watched.take(seen(0, P))
    after = PartitionSeen(2, 5, (2, 3), (2, 3), 130, {2: 130, 3: 120}, {1: "broker 1 is not running"})
    (change,) = watched.take(seen(1000, after))
    assert change.text == (
        "leader 1 -> 2, epoch 4 -> 5, ISR 1,2,3 -> 2,3, replicas 1,2,3 -> 2,3, HW 130 (+30), "
        "LEO 2:130 (+30) 3:120 (+30), broker 1 is not running"
    )
    assert change.fields()["changed"] == [
        *("leader", "leader_epoch", "isr", "replicas", "high_watermark", "log_end_offsets", "away")
    ]
    (back,) = watched.take(seen(2000, replace(after, away={}, leader=-1)))
    assert back.text == "leader 2 -> none, broker 1 answers again"


def test_an_isr_in_another_order_is_the_same_and_a_high_watermark_that_goes_back_is_seen() -> None:
    watched = Watched()
    watched.take(seen(0, P))
    (change,) = watched.take(seen(1, replace(P, isr=(3, 2, 1), high_watermark=88)))
    assert (change.text, change.is_event) == ("HW 88 (-12)", False)


def test_what_a_look_could_not_find_out_is_no_change() -> None:
    watched = Watched()
    watched.take(seen(0, P))
    assert watched.take(seen(1, replace(P, high_watermark=None, log_end_offsets={1: 100}))) == []


def test_a_look_that_failed_keeps_what_is_known_and_is_told_once() -> None:
    watched = Watched()
    watched.take(seen(0, P))
    silent = TopicSeen(1, "clicks", "", None, "no broker answers")
    assert texts(watched.take(silent)) == ["topic clicks: no broker answers"]
    assert watched.take(replace(silent, time_ms=2)) == []
    assert watched.current is not None and watched.current.partitions == {0: P}
    assert texts(watched.take(seen(3, replace(P, leader=2)))) == [
        "topic clicks: can be seen again",
        "clicks-0: leader 1 -> 2",
    ]


def test_a_topic_of_the_same_name_with_another_id_is_another_topic() -> None:
    watched = Watched()
    watched.take(seen(0, P))
    assert texts(watched.take(seen(1, topic_id="", problem="was deleted"))) == ["topic clicks: was deleted"]
    young = PartitionSeen(1, 0, (1,), (1,), 0)
    changes = watched.take(seen(2, young, topic_id="B"))
    assert texts(changes) == [
        "topic clicks: was created anew: its id is B, before A",
        "clicks-0: leader 1, epoch 0, ISR 1 of 1, HW 0",
    ]
    assert watched.records_per_second(0) is None


def test_a_topic_that_was_made_anew_between_two_looks_is_not_compared_with_the_old_one() -> None:
    watched = Watched()
    watched.take(seen(0, P))
    assert [each.changed for each in watched.take(seen(1000, replace(P, high_watermark=5), topic_id="B"))] == [
        ("topic_id",),
        (),
    ]
    assert watched.records_per_second(0) is None and watched.changed_ms == {}


def test_a_partition_that_comes_later_is_told_as_the_first_ones_were() -> None:
    watched = Watched()
    watched.take(seen(0, P))
    (change,) = watched.take(seen(1, P, PartitionSeen(2, 0, (2,), (2,))))
    assert (change.partition, change.changed, change.text) == (1, (), "leader 2, epoch 0, ISR 2 of 2")


def test_the_rate_is_that_of_the_last_two_looks() -> None:
    watched = Watched()
    watched.take(seen(0, P))
    assert watched.records_per_second(0) is None
    watched.take(seen(2000, replace(P, high_watermark=500)))
    assert watched.records_per_second(0) == 200


def test_where_there_is_no_room_for_all_what_is_wrong_comes_first() -> None:
    lagging, leaderless = replace(P, isr=(1,)), replace(P, leader=-1)
    topic = seen(0, P, P, P, lagging, P, leaderless, P)
    assert chosen(topic, {6: 9_000, 0: 5_000}, 4) == ([0, 3, 5, 6], 3)
    assert chosen(topic, {}, 7) == ([0, 1, 2, 3, 4, 5, 6], 0)


def test_the_table_shows_state_rate_what_changed_and_what_is_wrong() -> None:
    watched = Watched()
    watched.take(seen(0, *[P] * 6))
    changes = watched.take(seen(1000, replace(P, leader=-1, high_watermark=350), *[P] * 5))
    watched.take(TopicSeen(1000, "clicks", "", None, "no broker [answers]"))
    console = Console(file=io.StringIO(), width=130, height=12)
    with console.capture() as captured:
        console.print(drawn(watched, changes, {0: ("leader",)}, console))
    lines = [line.rstrip() for line in captured.get().splitlines()]
    assert lines[0] == "clicks · id A · 1970-01-01 00:00:01.000 UTC"
    assert lines[1] == "topic clicks: no broker [answers]"
    assert lines[4].split() == ["0", "none", "4", "1,2,3", "350", "1:100", "2:100", "3:90", "250", "0", "s", "ago"]
    assert lines[-3] == "… and 2 more partitions (--partition chooses)"
    assert lines[-2].endswith("clicks-0: leader 1 -> none, HW 350 (+250)")
