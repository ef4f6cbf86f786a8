"""Real processes for the integration tests: a ZooKeeper, and whole clusters whose members can be killed and paused.

A test takes `cluster` (three brokers that serve) or builds its own with `new_cluster`. Every process is stopped when
the test ends; when it failed, the ends of the logs are printed. Tests of Spark share one session (`spark`) and, where
they do not harm it, one cluster (`spark_cluster`); each has topics of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline.cli.cluster import EmbeddedCluster
from strandline.cli.zookeeper import EmbeddedZooKeeper
from support.spark import spark_session
from support.spark_classes import java_options

# Spark takes it whoever starts it: a session of the tests, a command, a program of the README as it stands.
os.environ["SPARK_SUBMIT_OPTS"] = java_options()

_LOG_TAIL_BYTES = 6000
_outcome = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.stash[_outcome] = True
    return report


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    """One real server for the whole run; tests keep apart by a chroot of their own."""
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def new_cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., EmbeddedCluster]]:
    """Build clusters (arguments of EmbeddedCluster after the folder; kind: a subclass); not started, but stopped in the
    end."""
    made: list[EmbeddedCluster] = []

    def build(*arguments: Any, kind: type[EmbeddedCluster] = EmbeddedCluster, **settings: Any) -> EmbeddedCluster:
        made.append(kind(tmp_path / f"cluster-{len(made) + 1}", *arguments, **settings))
        return made[-1]

    yield build
    for cluster in made:
        cluster.stop(timeout_s=10)
        if request.node.stash.get(_outcome, False):
            _print_logs(cluster)


@pytest.fixture
def cluster(new_cluster: Callable[..., EmbeddedCluster]) -> EmbeddedCluster:
    """ZooKeeper and three brokers that serve."""
    cluster = new_cluster(3)
    cluster.start()
    return cluster


def _print_logs(cluster: EmbeddedCluster) -> None:
    for path in [daemon.log_path for daemon in cluster.brokers.values()] + [cluster.zookeeper.process.log_path]:
        if path.exists():
            print(f"--- end of {path}")  # noqa: T201
            print(path.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace"))  # noqa: T201


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Spark starts once for all tests."""
    with spark_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    """Three brokers for all tests of Spark that do not harm them. They keep what is years old: so are the times that
    tests give their records, and after five minutes retention would take these away."""
    properties = {"log.retention.ms": "-1", "log.retention.check.interval.ms": "1000"}
    with EmbeddedCluster(tmp_path_factory.mktemp("spark-cluster"), 3, properties=properties) as cluster:
        yield cluster
