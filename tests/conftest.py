"""What all tests share: nothing that a single folder could have for itself."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

# A shell ignores SIGINT in what it runs in the background, and children inherit that: tests of Ctrl-C need it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No clock decides: on a busy machine a slow example is no failure, nor is slow drawing. CI draws the same examples
# each time.
settings.register_profile("strandline", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("strandline"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "strandline")


@pytest.fixture(autouse=True)
def _nothing_of_the_developers_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands under test must not find the cluster that somebody has up on this machine, nor brokers take a switch of
    the tests (`make compat` sets one) for a key."""
    for name in [name for name in os.environ if name.startswith(("STRANDLINE_", "KAFKA_"))]:
        monkeypatch.delenv(name)
