"""Long runs of the property tests, collected only by `make soak`: STRANDLINE_SOAK_MINUTES says how long."""

from __future__ import annotations

import os

import pytest

from support.log_machine import LogMachine

if not os.environ.get("STRANDLINE_SOAK_MINUTES"):
    collect_ignore_glob = ["test_*.py"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if LogMachine.examples:
        terminalreporter.write_line(LogMachine.report())
