"""The heap of deadlines: each is kept once, and who left is not kept in memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from strandline.broker.replication.deadlines import NEVER, SPARE_ENTRIES, Deadlines


class Waiting:
    def __init__(self) -> None:
        self.due_at = NEVER
        self.expired_at: list[float] = []
        self.next_at = NEVER

    def expire(self, now: float) -> float:
        self.expired_at.append(now)
        return self.next_at


def test_who_is_overdue_ends_once_and_the_others_wait_on() -> None:
    deadlines, early, late = Deadlines(), Waiting(), Waiting()
    deadlines.enter(late, 9.0)
    deadlines.enter(early, 5.0)
    for now in (4.9, 5.0, 8.0):
        deadlines.expire(now)
    assert (early.expired_at, late.expired_at, len(deadlines)) == ([5.0], [], 1)


def test_a_time_that_was_entered_anew_counts_alone() -> None:
    deadlines, waiting = Deadlines(), Waiting()
    deadlines.enter(waiting, 9.0)
    deadlines.enter(waiting, 5.0)
    assert len(deadlines) == 1
    deadlines.expire(6.0)
    deadlines.expire(9.0)
    assert waiting.expired_at == [6.0] and len(deadlines) == 0


def test_a_queue_is_looked_at_again_when_its_next_one_is_due() -> None:
    deadlines, queue = Deadlines(), Waiting()
    queue.next_at = 7.0
    deadlines.enter(queue, 5.0)
    deadlines.expire(5.0)
    queue.next_at = NEVER
    deadlines.expire(6.9)
    deadlines.expire(7.0)
    assert queue.expired_at == [5.0, 7.0] and len(deadlines) == 0


def test_who_wants_to_be_looked_at_at_once_again_is_with_the_next_call() -> None:
    deadlines, hasty = Deadlines(), Waiting()
    hasty.next_at = 5.0
    deadlines.enter(hasty, 5.0)
    for _ in range(2):
        deadlines.leave(hasty)
        deadlines.enter(hasty, 5.0)  # stands there several times now
    deadlines.expire(5.0)
    assert hasty.expired_at == [5.0]
    deadlines.expire(5.0)
    assert hasty.expired_at == [5.0, 5.0] and len(deadlines) == 1


def test_who_is_ended_by_another_one_s_end_is_not_looked_at() -> None:
    deadlines, other = Deadlines(), Waiting()

    class Ends(Waiting):
        def expire(self, now: float) -> float:
            deadlines.leave(other)
            return super().expire(now)

    deadlines.enter(Ends(), 4.0)
    deadlines.enter(other, 5.0)
    deadlines.expire(6.0)
    assert other.expired_at == [] and len(deadlines) == 0


def test_who_left_is_not_kept_until_its_time_would_have_come() -> None:
    deadlines = Deadlines()
    for _ in range(10_000):
        waiting = Waiting()
        deadlines.enter(waiting, 1e9)
        deadlines.leave(waiting)
    assert len(deadlines) == 0 and len(deadlines._heap) <= SPARE_ENTRIES + 1


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(("enter", "leave", "expire")), st.integers(0, 4), st.integers(0, 20)), max_size=60
    )
)
def test_everybody_ends_at_its_latest_time_and_not_after_leaving(steps: list[tuple[str, int, int]]) -> None:
    deadlines, members = Deadlines(), [Waiting() for _ in range(5)]
    due: dict[int, int] = {}
    for what, who, at in steps:
        if what == "enter":
            deadlines.enter(members[who], at)
            due[who] = at
        elif what == "leave":
            deadlines.leave(members[who])
            due.pop(who, None)
        else:
            counts = [len(member.expired_at) for member in members]
            deadlines.expire(at)
            ended = {each for each, before in enumerate(counts) if len(members[each].expired_at) > before}
            assert ended == {each for each, when in due.items() if when <= at}
            due = {each: when for each, when in due.items() if when > at}
        assert len(deadlines) == len(due)
