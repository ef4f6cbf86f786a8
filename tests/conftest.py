"""What all tests share: nothing that a single folder could have for itself."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

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
def _no_cluster_of_the_developer(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Commands under test must not find the cluster that somebody has up on this machine."""
    for name in ("STRANDLINE_BOOTSTRAP", "STRANDLINE_DATA", "STRANDLINE_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    yield
