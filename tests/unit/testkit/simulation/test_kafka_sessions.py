"""What a consumer names in a fetch session: everything at first, then only what changed."""

from __future__ import annotations

from strandline.protocol.errors import ErrorCode
from strandline.testkit.simulation.workloads.kafka_sessions import FetchSession, Wanted

FIRST, NEXT, OTHER = Wanted(0, 1), Wanted(5, 1), Wanted(7, 2)


def test_who_uses_no_session_names_everything_each_time() -> None:
    session = FetchSession(is_used=False)
    for _ in range(2):
        assert session.next_step({0: FIRST}) == (0, -1, {0: FIRST}, [])
        session.answered(0)


def test_only_what_changed_is_named_and_what_is_left_is_forgotten() -> None:
    session = FetchSession(is_used=True)
    assert session.next_step({0: FIRST, 1: OTHER}) == (0, 0, {0: FIRST, 1: OTHER}, [])
    session.answered(77)
    assert session.next_step({0: FIRST, 1: OTHER}) == (77, 1, {}, [])
    session.answered(77)
    assert session.next_step({0: NEXT, 2: OTHER}) == (77, 2, {0: NEXT, 2: OTHER}, [1])


def test_a_broker_that_keeps_no_session_is_told_everything_again() -> None:
    session = FetchSession(is_used=True)
    session.next_step({0: FIRST})
    session.answered(0)
    assert session.next_step({0: FIRST}) == (0, 0, {0: FIRST}, [])


def test_after_a_failure_a_new_session_begins_in_place_of_the_old_one() -> None:
    session = FetchSession(is_used=True)
    session.next_step({0: FIRST})
    session.answered(77)
    session.next_step({0: NEXT})
    session.failed()
    assert session.next_step({0: NEXT}) == (77, 0, {0: NEXT}, [])
    session.failed(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert session.next_step({0: NEXT}) == (0, 0, {0: NEXT}, [])
