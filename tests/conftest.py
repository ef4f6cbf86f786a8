"""What all tests share: nothing that a single folder could have for itself."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from support.time_limit import limited

# A shell ignores SIGINT in what it runs in the background, `nohup` SIGHUP, and children inherit that: commands obey it,
# and their tests are about a terminal.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Hundreds of brokers and commands are started: what they import is compiled once, whatever the environment says.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# No clock decides: on a busy machine a slow example is no failure, nor is slow drawing. CI draws the same examples
# each time.
settings.register_profile("strandline", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("strandline"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "strandline")

INTEGRATION = Path(__file__).parent / "integration"
NICENESS_OF_COMPUTING = 10


@pytest.fixture(autouse=True)
def _nothing_of_the_developers_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands under test must not find the cluster that somebody has up on this machine, nor brokers take a switch of
    the tests (`make compat` sets one) for a key."""
    for name in [name for name in os.environ if name.startswith(("STRANDLINE_", "KAFKA_"))]:
        monkeypatch.delenv(name)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`make test` runs several processes; which of them gets what is decided there."""
    from support.scheduling import RealProcessesApart

    return RealProcessesApart(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One for each core that computes, and one for the integration tests, which leave most of a core to others."""
    return int(os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS") or len(os.sched_getaffinity(0)) + 1)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Any:
    with limited(item):
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Whatever only computes gives way to the brokers of the integration tests, whose time-outs are real."""
    is_beside_others = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > 1
    if is_beside_others and INTEGRATION not in item.path.parents:
        os.setpriority(os.PRIO_PROCESS, 0, max(NICENESS_OF_COMPUTING, os.getpriority(os.PRIO_PROCESS, 0)))
