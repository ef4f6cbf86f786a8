"""Error codes: every one explains itself, and unknown numbers do no harm."""

from __future__ import annotations

import pytest

from strandline.protocol.errors import BrokerError, ErrorCode, error_code


@pytest.mark.parametrize("code", ErrorCode, ids=lambda code: code.name)
def test_every_code_explains_itself_in_one_sentence(code: ErrorCode) -> None:
    assert code.explanation.endswith(".") and "\n" not in code.explanation
    assert code.retriable or not code.invalid_metadata, "a code that asks for new metadata asks to try again"


def test_the_numbers_are_kafkas_without_a_gap() -> None:
    assert [int(code) for code in ErrorCode] == list(range(-1, 121))
    assert (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_RECORD) == (6, 74, 87)


def test_codes_that_cure_themselves_are_retriable_and_definite_ones_are_not() -> None:
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.invalid_metadata
    assert ErrorCode.NOT_ENOUGH_REPLICAS.retriable and not ErrorCode.NOT_ENOUGH_REPLICAS.invalid_metadata
    assert not ErrorCode.MESSAGE_TOO_LARGE.retriable


def test_a_number_that_this_build_does_not_know_is_an_unknown_error() -> None:
    assert error_code(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert error_code(32_000) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_broker_error_names_its_code() -> None:
    error = BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, "topic name '..' is a path")
    assert str(error) == "INVALID_TOPIC_EXCEPTION: topic name '..' is a path"
    assert BrokerError(ErrorCode.NOT_CONTROLLER).args[0] == ErrorCode.NOT_CONTROLLER.explanation
