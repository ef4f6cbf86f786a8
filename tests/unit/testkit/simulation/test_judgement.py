"""What is said of a run in its end."""

from __future__ import annotations

from strandline.protocol.types import TopicPartition
from strandline.testkit.simulation.history import NEVER_S, History, Outcome, Stream, Write
from strandline.testkit.simulation.judgement import OUTCOME_WITHIN_S, late_outcomes

STREAM = Stream(TopicPartition("t", 0), 1)


def ended(after_s: float) -> Write:
    return Write("p", STREAM, b"v", -1, 5.0, 5.0 + after_s, Outcome.UNKNOWN)


def test_a_write_whose_outcome_is_late_or_never_comes_is_found() -> None:
    assert late_outcomes(History([ended(OUTCOME_WITHIN_S)])) == []
    assert len(late_outcomes(History([ended(OUTCOME_WITHIN_S + 1), ended(NEVER_S)]))) == 2
