"""librdkafka's own test suite, on three brokers of ours.

`scripts/librdkafka-tests` builds it. Each test is a process of its own, and some run at once, the longest first, in
topics and groups of their own. Tests that need no broker say nothing about us, and those of which nothing has run pass:
here they fail.

What `make compat` runs is `QUICK`; `make compat-clients` adds `LONG` (`STRANDLINE_COMPAT_SUITE=long`). `LEFT_OUT` says
why the others are not run. `STRANDLINE_COMPAT_BOOTSTRAP` is the address of another cluster, as in test_clients.py.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

import pytest

from compat.jars import KAFKA_3
from compat.other_clients import ROOT, java
from strandline.cli.cluster import EmbeddedCluster

BOOTSTRAP = os.environ.get("STRANDLINE_COMPAT_BOOTSTRAP")
IS_LONG = os.environ.get("STRANDLINE_COMPAT_SUITE") == "long"
SUITE = ROOT / ".cache" / "librdkafka"
AT_ONCE = 5
TIMEOUT_S = 400.0
SHORTEST_S = 0.005
"""A test that took less has run nothing."""
SHOWN_CHARACTERS = 20_000
KAFKA_VERSION = "3.9.0"
"""Which tests the runner holds us able to pass."""
PROPERTIES = {
    "num.partitions": "4",
    "group.initial.rebalance.delay.ms": "3000",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}
"""As the suite's own clusters have them (tests/scenarios/default.json and tests/cluster_testing.py there)."""


DEFAULT = "default"
NO_CREATION = "noautocreate"
SCENARIOS = {DEFAULT: PROPERTIES, NO_CREATION: {**PROPERTIES, "auto.create.topics.enable": "false"}}
"""The runner skips what does not go with the scenario that it is told."""


class Run(NamedTuple):
    """One call of the runner. `part`: only the test's parts whose heading contains this."""

    test: str
    part: str = ""
    scenario: str = DEFAULT
    """Which cluster it needs: a key of `SCENARIOS`."""

    def __str__(self) -> str:
        scenario = "" if self.scenario == DEFAULT else self.scenario
        return "-".join(word.replace(" ", "-") for word in (self.test, self.part, scenario) if word)


class Ended(NamedTuple):
    problem: str
    """Empty: it passed."""
    output: str


_RESULT = re.compile(r"\| (\d{4})\w* +\| +([A-Z]+) \| +([\d.]+)s")
_COLOUR = re.compile(r"\x1b\[[\d;]*m|\x1b\(B")

# From the longest to the shortest, so that none of the long ones begins last.
QUICK = (
    Run("0102"),
    Run("0137", "_with_"),  # parts of this and of 0061 need transactions
    Run("0030"),
    Run("0122"),
    Run("0050"),
    Run("0118"),
    Run("0061", "without transactions"),
    Run("0017"),
    Run("0042"),
    Run("0137", "store_offset"),
    Run("0137", "eof_position"),
    Run("0012"),
    Run("0034"),
    Run("0001"),
    Run("0099"),
    Run("0130"),
    Run("0005"),
    Run("0008"),
    Run("0031"),
    Run("0054"),
    Run("0073"),
)
ADMIN_PARTS = (
    "DeleteGroups",
    "ListConsumerGroupOffsets",
    "AlterConsumerGroupOffsets",
    "DeleteConsumerGroupOffsets",
    "ListOffsets",
    "DescribeConfigs:",
    "CreateTopics",
    "CreatePartitions",
    "DeleteTopics",
)
LONG = (
    Run("0113"),
    # Other parts of 0081 set ACLs, SCRAM passwords, configurations of groups and keys of SASL.
    Run("0081", "do_test_ListConsumerGroups"),
    Run("0089"),
    Run("0045"),
    Run("0033"),
    Run("0091"),
    Run("0026"),
    Run("0094"),
    Run("0076"),
    Run("0041"),
    Run("0038"),
    Run("0018"),
    Run("0093"),
    Run("0049"),
    Run("0088"),
    Run("0114"),
    Run("0084"),
    Run("0069"),
    Run("0020"),
    Run("0075"),
    Run("0123"),
    Run("0132"),
    Run("0015"),
    Run("0125"),
    Run("0051"),
    Run("0083"),
    Run("0014"),
    Run("0110"),
    Run("0029"),
    Run("0086"),
    Run("0040"),
    Run("0019"),
    Run("0011"),
    Run("0082"),
    Run("0059"),
    Run("0101"),
    Run("0060"),
    Run("0056"),
    Run("0067"),
    Run("0127"),
    Run("0090"),
    Run("0112"),
    Run("0044"),
    Run("0068"),
    Run("0048"),
    Run("0053"),
    Run("0021"),
    Run("0002"),
    Run("0003"),
    Run("0007"),
    Run("0013"),
    Run("0016"),
    Run("0022"),
    Run("0035"),
    Run("0036"),
    Run("0039"),
    Run("0057"),
    Run("0063"),
    Run("0065"),
    Run("0070"),
    Run("0085"),
    Run("0140"),
    *(Run("0081", f"do_test_{part}") for part in ADMIN_PARTS),
    *(Run(test, scenario=NO_CREATION) for test in ("0107", "0045", "0111")),
)
TRANSACTIONS = "needs transactions"
SECURITY = "needs SASL, TLS or ACLs"
NO_BROKER = "talks to a broker of its own making"
LEFT_OUT = {
    "0028": "is known to fail in librdkafka",
    "0047": "is known to fail in librdkafka",
    "0064": "needs a librdkafka with TLS",
    "0052": "produces with versions 0 to 2, as clients of 0.9 do",
    "0077": "waits for compaction with limits of its own",
    "0092": "sets message.format.version: records of formats 0 and 1 are not served",
    "0055": TRANSACTIONS,
    "0098": TRANSACTIONS,
    "0103": TRANSACTIONS,
    "0129": TRANSACTIONS,
    "0097": SECURITY,
    "0109": SECURITY,
    "0115": SECURITY,
    "0119": SECURITY,
    "0126": SECURITY,
    "0135": SECURITY,
    "0142": SECURITY,
    "0139": NO_BROKER,
    "0150": NO_BROKER,
}


class Racks(EmbeddedCluster):
    """Each broker in a rack of its own."""

    def own_properties(self, broker_id: int) -> dict[str, str]:
        return {**super().own_properties(broker_id), "broker.rack": f"RACK{broker_id}"}


class Suite:
    """The runner, and where each call of it stands."""

    def __init__(self, bootstrap: str, folder: Path, runs: list[Run]) -> None:
        self._bootstrap = bootstrap
        self._folder = folder
        tools = folder / "bin" / "kafka-topics.sh"
        tools.parent.mkdir()
        command = shlex.join(java(KAFKA_3, "org.apache.kafka.tools.TopicCommand"))
        tools.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        tools.chmod(0o755)
        self._threads = ThreadPoolExecutor(AT_ONCE)
        self._ended: dict[Run, Future[Ended]] = {run: self._threads.submit(self._ran, run) for run in runs}

    def ended(self, run: Run) -> Ended:
        return self._ended[run].result()

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)

    def _ran(self, run: Run) -> Ended:
        folder = self._folder / str(run)
        folder.mkdir()
        configuration = folder / "test.conf"
        configuration.write_text(f"bootstrap.servers={self._bootstrap}\ntest.topic.random=true\n")
        environment = {
            **os.environ,
            "TESTS": run.test,
            "SUBTESTS": run.part,
            "TEST_KAFKA_VERSION": KAFKA_VERSION,
            "RDKAFKA_TEST_CONF": str(configuration),
            "LD_LIBRARY_PATH": f"{SUITE / 'src'}:{SUITE / 'src-cpp'}",
            "KAFKA_PATH": str(self._folder),
            "BROKERS": self._bootstrap,
        }
        began = time.monotonic()
        with open(folder / "output", "wb+") as output:
            # -L: no tests without brokers, -p1: one at a time.
            command = [str(SUITE / "tests" / "test-runner"), "-L", "-p1", "-s", run.scenario]
            process = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT)
            try:
                code = process.wait(TIMEOUT_S)
                problem = f"exit code {code}" if code else ""
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                problem = f"did not end in {TIMEOUT_S:.0f} s"
            output.seek(0)
            text = _COLOUR.sub("", output.read().decode(errors="replace"))
        return Ended(problem or problem_of(run, text), f"{run}: {time.monotonic() - began:.1f} s\n{text}")


def problem_of(run: Run, output: str) -> str:
    """What the runner's table of results says against the test; empty: it ran and passed."""
    results = [(state, float(took)) for test, state, took in _RESULT.findall(output) if test == run.test]
    counted = [(state, took) for state, took in results if state != "SKIPPED"]
    if not counted:
        return "nothing has run"
    if any(state != "PASSED" for state, _ in counted):
        return "it failed"
    if max(took for _, took in counted) < SHORTEST_S:
        return f"nothing has run in less than {SHORTEST_S} s"
    return ""


class Suites:
    """One after the other, each on a cluster of its own, which ends where the next one is asked for: a fixture that is
    parametrized would be made anew for each test, since each has a parameter of its own. Begins with all that is to be
    run in a scenario."""

    def __init__(self, runs: Sequence[Run], tmp_path_factory: pytest.TempPathFactory) -> None:
        self._runs = runs
        self._tmp_path_factory = tmp_path_factory
        self._scenario = ""
        self._ending = ExitStack()

    def of(self, scenario: str) -> Suite:
        if self._scenario != scenario:
            self.close()
            self._scenario, self._suite = scenario, self._begun(scenario)
        return self._suite

    def close(self) -> None:
        self._scenario = ""
        self._ending.close()

    def _begun(self, scenario: str) -> Suite:
        bootstrap = BOOTSTRAP
        if bootstrap is None:
            cluster = Racks(self._tmp_path_factory.mktemp("cluster"), 3, properties=SCENARIOS[scenario])
            self._ending.callback(cluster.stop, timeout_s=10)
            cluster.start()
            bootstrap = cluster.bootstrap_servers
        asked = [run for run in self._runs if run.scenario == scenario]
        suite = Suite(bootstrap, self._tmp_path_factory.mktemp("librdkafka"), asked)
        self._ending.callback(suite.close)
        return suite


RUNS = sorted((*(LONG if IS_LONG else ()), *QUICK), key=lambda run: run.scenario)
"""Scenario by scenario: each has one cluster."""


@pytest.fixture(scope="module")
def suites(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suites]:
    calls = [getattr(item, "callspec", None) for item in request.session.items if item.path == request.path]
    asked = [call.params["run"] for call in calls if call is not None and "run" in call.params]
    with closing(Suites(asked, tmp_path_factory)) as suites:
        yield suites


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_a_test_of_librdkafka_passes(suites: Suites, run: Run) -> None:
    suite = suites.of(run.scenario)
    problem, output = suite.ended(run)
    assert not problem, f"{run}: {problem}\n{output[-SHOWN_CHARACTERS:]}"


def test_every_test_with_a_broker_is_run_or_left_out_for_a_reason() -> None:
    """Share groups are none of ours; a test may be manual, too."""
    source = (SUITE / "tests" / "test.c").read_text()
    rows = re.findall(r"^ {4}_TEST\((\d{4})_(\w*),\s*([\w |]+)", source, re.MULTILINE)
    wanted = {test for test, name, flags in rows if not re.search("LOCAL|MANUAL", flags) and "share" not in name}
    run = {run.test for run in (*QUICK, *LONG)}
    assert sorted(run | set(LEFT_OUT)) == sorted(wanted)
    assert not run & set(LEFT_OUT)


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("| 0001_multiobj                            |     PASSED |   2.038s |", ""),
        (
            "| 0001_multiobj                            |     PASSED |   0.004s |",
            "nothing has run in less than 0.005 s",
        ),
        ("| 0001_multiobj                            |     FAILED |   2.038s |", "it failed"),
        ("| 0001_multiobj                            |    SKIPPED |   0.000s | Filtered", "nothing has run"),
        ("", "nothing has run"),
    ],
)
def test_what_has_run_nothing_does_not_pass(table: str, problem: str) -> None:
    assert problem_of(Run("0001"), table) == problem
