"""The sink asks how large a batch a topic takes, and goes on where nobody says."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.client.errors import AnsweredError, ClientError, RequestTimedOut, UnknownTopic
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import DescribeConfigsResourceResult
from strandline.spark_connector.writing import limits
from strandline.spark_connector.writing.limits import ATTEMPTS, KEY, TopicLimits


class _Admin:
    """Answers one after the other; the last one from then on."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[list[str], list[str]]] = []

    def describe_topic_configs(self, names: list[str], keys: list[str], *, timeout_ms: float) -> dict[str, Any]:
        self.asked.append((names, keys))
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, RequestTimedOut):
            raise answer
        return {names[0]: answer}


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    made: list[float] = []
    monkeypatch.setattr(limits, "pause", made.append)
    return made


def answered(value: str | None) -> list[Any]:
    return [DescribeConfigsResourceResult(KEY, value, False, 1, False, [])]


def refused(kind: type[AnsweredError]) -> ClientError:
    return kind(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"{kind.__name__} t")


def test_each_topic_is_asked_about_once() -> None:
    admin: Any = _Admin(answered("20000"))
    known = TopicLimits(admin)
    assert [known.of(topic) for topic in "tut"] == [20_000] * 3
    assert admin.asked == [(["t"], [KEY]), (["u"], [KEY])]


@pytest.mark.parametrize(
    "answer", [refused(AnsweredError), RequestTimedOut("nobody answers"), answered(None), []], ids=str
)
def test_where_the_cluster_does_not_say_there_is_no_limit(answer: Any) -> None:
    admin: Any = _Admin(answer)
    known = TopicLimits(admin)
    assert (known.of("t"), known.of("t")) == (None, None)
    assert len(admin.asked) == 1


def test_a_topic_that_was_just_created_is_asked_about_again(pauses: list[float]) -> None:
    unknown = refused(UnknownTopic)
    admin: Any = _Admin(unknown, unknown, answered("500"))
    assert TopicLimits(admin).of("t") == 500
    assert len(pauses) == 2
    nowhere: Any = _Admin(unknown)
    assert TopicLimits(nowhere).of("t") is None
    assert len(nowhere.asked) == ATTEMPTS
