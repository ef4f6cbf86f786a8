"""The log against a list (`testkit/log_machine`), a short run; `make soak` is the long one."""

from __future__ import annotations

from hypothesis import settings

from strandline.testkit.log_machine import LogMachine

TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
