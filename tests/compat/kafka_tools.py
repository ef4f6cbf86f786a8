"""Kafka's command line tools, many in one Java virtual machine: each start of one costs a second of both cores.

The machine is driven through py4j, which comes with pyspark, so that no Java compiler is needed. What a tool prints,
to either stream, is caught as it comes. Where a tool ends itself (`Exit.exit`), its thread stays where it is for good:
nothing that it would have done afterwards is done or printed, as in a process of its own.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from py4j.java_gateway import CallbackServerParameters, GatewayParameters, JavaGateway, launch_gateway

from compat.jars import KAFKA_3, KAFKA_4, Jars
from compat.other_clients import JAVA_OPTIONS, java
from compat.real_kafka import wait_until
from strandline.cli.java import find_java

TOOL_TIMEOUT_S = 30.0
NO_END = -1
"""The exit code of a tool that goes on longer."""
ENDLESS = {"kafka-replica-verification": r"max lag is .*\n"}
"""Tools that go on until they are interrupted, and what they have printed when it is enough."""
OF_BOTH = {
    "kafka-acls": "AclCommand",
    "kafka-broker-api-versions": "BrokerApiVersionsCommand",
    "kafka-cluster": "ClusterTool",
    "kafka-configs": "ConfigCommand",
    "kafka-consumer-groups": "consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "ConsumerPerformance",
    "kafka-delete-records": "DeleteRecordsCommand",
    "kafka-get-offsets": "GetOffsetShell",
    "kafka-leader-election": "LeaderElectionCommand",
    "kafka-log-dirs": "LogDirsCommand",
    "kafka-producer-perf-test": "ProducerPerformance",
    "kafka-reassign-partitions": "reassign.ReassignPartitionsCommand",
    "kafka-replica-verification": "ReplicaVerificationTool",
    "kafka-topics": "TopicCommand",
    "kafka-transactions": "TransactionsCommand",
}
"""By script: the class, below the package of tools."""
ELSEWHERE = {
    "3.9": {
        "kafka-acls": "kafka.admin.AclCommand",
        "kafka-broker-api-versions": "kafka.admin.BrokerApiVersionsCommand",
        "kafka-cluster": "kafka.tools.ClusterTool",
        "kafka-configs": "kafka.admin.ConfigCommand",
    },
    "4.3": {"kafka-configs": "kafka.admin.ConfigCommand"},
}
"""By version: the classes that are in another package."""
JARS = {"3.9": KAFKA_3, "4.3": KAFKA_4}


class _Exits:
    """`Exit.Procedure`: it tells who waits for the tool, and does not return."""

    class Java:
        implements = ("org.apache.kafka.common.utils.Exit$Procedure",)

    def __init__(self) -> None:
        self.done: Future[int] = Future()
        self.closed = threading.Event()

    def execute(self, code: int, message: str | None) -> None:
        if not self.done.done():
            self.done.set_result(code)
        self.closed.wait()


class KafkaTools:
    """The tools of one version ("3.9" or "4.3"). A context manager: the machine ends with it."""

    def __init__(self, version: str, folder: Path) -> None:
        self._classes = {name: f"org.apache.kafka.tools.{of_it}" for name, of_it in OF_BOTH.items()}
        self._classes |= ELSEWHERE[version]
        self._jars, self._folder = JARS[version], folder
        settings = folder / "log4j.properties"
        settings.write_text("log4j.rootLogger=OFF\n")
        self._logging = f"-Dlog4j.configuration=file:{settings}"
        self._gateway = _start(self._jars, self._logging)
        jvm: Any = self._gateway.jvm
        # Once and for all: Scala keeps the first stream that it finds.
        self._printed = jvm.java.io.ByteArrayOutputStream()
        stream = jvm.java.io.PrintStream(self._printed, True)
        jvm.java.lang.System.setOut(stream)
        jvm.java.lang.System.setErr(stream)
        self._exits = _Exits()
        self._threads: list[threading.Thread] = []
        jvm.org.apache.kafka.common.utils.Exit.setExitProcedure(self._exits)

    def __enter__(self) -> KafkaTools:
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.closed.set()  # whoever ended itself goes on, to its true end
        for thread in self._threads:
            thread.join(TOOL_TIMEOUT_S)
        self._gateway.shutdown()
        self._gateway.java_process.stdin.close()  # it ends with its input
        self._gateway.java_process.wait(TOOL_TIMEOUT_S)

    def run(self, command: str) -> tuple[str, int]:
        """What a command line prints, and its exit code."""
        name, *arguments = shlex.split(command)
        if name in ENDLESS:
            return self._run_for_a_while(name, arguments), 0
        self._printed.reset()
        self._exits.done = done = Future()
        self._threads.append(threading.Thread(target=self._main, args=(name, arguments, done), daemon=True))
        self._threads[-1].start()
        try:
            code = done.result(TOOL_TIMEOUT_S)
        except TimeoutError:
            code = NO_END
        return str(self._printed.toString("UTF-8")), code

    def _run_for_a_while(self, name: str, arguments: list[str]) -> str:
        """In a process of its own: its threads do not end."""
        command = java(self._jars, self._classes[name], *arguments)
        command.insert(1, self._logging)
        return watched(command, self._folder / f"{name}.txt", ENDLESS[name])

    def _main(self, name: str, arguments: list[str], done: Future[int]) -> None:
        try:
            given = self._gateway.new_array(self._gateway.jvm.java.lang.String, len(arguments))
            for place, argument in enumerate(arguments):
                given[place] = argument
            main: Callable[[Any], None] = getattr(self._gateway.jvm, self._classes[name]).main
            main(given)
            done.set_result(0)
        except Exception as error:
            if not self._exits.closed.is_set():
                done.set_exception(error)


def watched(command: Sequence[str], path: Path, enough: str) -> str:
    """What a command has printed, into that file, once there is a match of `enough` or it has ended. It is killed."""
    with path.open("w") as printed:
        process = subprocess.Popen(command, stdout=printed, stderr=subprocess.STDOUT)
        try:
            wait_until(
                lambda: process.poll() is not None or re.search(enough, path.read_text()), f"{path.stem} goes on"
            )
        finally:
            process.kill()
            process.wait()
    return path.read_text()


def _start(jars: Jars, logging: str) -> JavaGateway:
    pyspark = find_spec("pyspark")
    assert pyspark is not None and pyspark.origin is not None, "make setup installs pyspark"
    [py4j] = Path(pyspark.origin).parent.glob("jars/py4j-*.jar")
    port, token, process = launch_gateway(
        jarpath=str(py4j),
        classpath=jars.class_path(),
        javaopts=[*JAVA_OPTIONS, logging],
        java_path=str(find_java().command),
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
    )
    gateway = JavaGateway(
        gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True),
        callback_server_parameters=CallbackServerParameters(port=0, daemonize=True, daemonize_connections=True),
        java_process=process,
    )
    server = gateway.get_callback_server()
    back = gateway.java_gateway_server
    back.resetCallbackClient(back.getCallbackClient().getAddress(), server.get_listening_port())
    return gateway
