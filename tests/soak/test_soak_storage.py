"""State machines of storage, new examples until the time is up. A failure prints what reproduces it."""

from __future__ import annotations

import os
import time

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from support.log_machine import LogMachine
from support.producer_machine import ProducerMachine

MINUTES = float(os.environ["STRANDLINE_SOAK_MINUTES"])
MACHINES: list[type[RuleBasedStateMachine]] = [LogMachine, ProducerMachine]
ROUND = settings(
    max_examples=200, stateful_step_count=60, deadline=None, derandomize=False, database=None, print_blob=True
)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)
def test_no_example_breaks(machine: type[RuleBasedStateMachine]) -> None:
    until = time.monotonic() + 60 * MINUTES / len(MACHINES)
    while time.monotonic() < until:
        run_state_machine_as_test(machine, settings=ROUND)
