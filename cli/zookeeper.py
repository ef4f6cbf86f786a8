"""The embedded ZooKeeper: the real server, from the jars that pyspark carries, as one small process on loopback.

It is tuned for a short start and little memory (0.5 s, about 75 MB), not for load. It can be stopped and started again
on the same port and folder. Only for the embedded cluster and tests: a production cluster has its own ensemble.

The folder may be called anything that is UTF-8: Java reads property files as ISO-8859-1, so the name is escaped there,
and takes file names in the encoding of its locale, so it gets a UTF-8 one whatever the user's is.
"""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable
from pathlib import Path

from strandline.cli.java import find_java
from strandline.cli.process import Daemon, ProcessFailed
from strandline.runtime.loopback import LOOPBACK, free_port, zookeeper_folder

_MAIN_CLASS = "org.apache.zookeeper.server.ZooKeeperServerMain"
_JARS = ("log4j-", "metrics-core-", "netty-", "slf4j-api-", "snappy-java-", "zookeeper-")
_NEEDLESS_JARS = ("netty-all-", "netty-tcnative-", "netty-transport-native-", "log4j-1.2-", "log4j-layout-")
_PORT_TAKEN = b"Address already in use"
_STARTS = 5
_ENVIRONMENT = {"LC_ALL": "C.UTF-8"}

_CONFIG = """\
dataDir={data}
clientPort={port}
clientPortAddress={host}
admin.enableServer=false
# How it is told from another server on its port.
4lw.commands.whitelist=conf,srvr
maxClientCnxns=0
# Sessions end in steps of a tick, each up to one late: a small one adds little to the time a dead broker is waited for.
tickTime=100
maxSessionTimeout=60000
autopurge.snapRetainCount=3
autopurge.purgeInterval=1
"""


class ZooKeeperJarsMissing(Exception):
    """pyspark, which carries ZooKeeper's jars, is not installed."""


class EmbeddedZooKeeper:
    """One standalone server. Usable as a context manager: `with EmbeddedZooKeeper(folder) as zookeeper: …`."""

    def __init__(self, folder: Path, *, port: int | None = None, heap_mb: int = 128) -> None:
        """`folder` keeps its data, configuration and log; `port`: a free one is chosen when None."""
        self.folder = folder.resolve()
        self.port = port
        self._port_is_given = port is not None
        self._heap_mb = heap_mb
        self.process = Daemon("ZooKeeper", self.folder / "zookeeper.log")

    @property
    def address(self) -> str:
        """host:port, as for `zookeeper.connect`."""
        if self.port is None:
            raise ProcessFailed("ZooKeeper was not started yet and has no port")
        return f"{LOOPBACK}:{self.port}"

    def fix_port(self, port: int) -> None:
        """Use this port or fail: its clients know it."""
        self.port, self._port_is_given = port, True

    def start(self, timeout_s: float = 60.0, on_launched: Callable[[], object] = lambda: None) -> None:
        """Start and wait until it serves. on_launched: called when its process is there, on a port that may prove to be
        taken; then again with the next. ProcessFailed, JavaNotFound, ZooKeeperJarsMissing."""
        class_path = _class_path()
        java = find_java()
        (self.folder / "data").mkdir(parents=True, exist_ok=True)
        for attempt in range(_STARTS):
            if self.port is None:
                self.port = free_port()
            log_position = self._log_size()
            self._launch(str(java.command), class_path)
            on_launched()
            if self._wait_until_serving(log_position, timeout_s):
                self._port_is_given = True  # Its clients know it now: a later start takes this one or fails.
                return
            if self._port_is_given or attempt == _STARTS - 1:
                break
            self.port = None
        raise ProcessFailed(f"ZooKeeper: port {self.port} on {LOOPBACK} is taken (log: {self.process.log_path})")

    def answers(self, timeout_s: float) -> bool:
        """Does it answer a question, not only run?"""
        return self.process.is_alive and self.port is not None and zookeeper_folder(self.port, timeout_s) is not None

    def stop(self, timeout_s: float = 10.0) -> None:
        """SIGTERM, after `timeout_s` SIGKILL; the data stays. Idempotent."""
        self.process.stop(timeout_s)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()

    def __enter__(self) -> EmbeddedZooKeeper:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _launch(self, java: str, class_path: str) -> None:
        config = self.folder / "zookeeper.properties"
        data = java_property(os.fsencode(self.folder / "data").decode())
        config.write_text(_CONFIG.format(data=data, port=self.port, host=LOOPBACK), encoding="ascii")
        command = [
            java,
            f"-Xmx{self._heap_mb}m",
            # A short start: no optimising compiler, shared classes of the runtime, the simplest collector.
            "-XX:TieredStopAtLevel=1",
            "-Xshare:auto",
            "-XX:+UseSerialGC",
            "-XX:+ExitOnOutOfMemoryError",
            "-Djava.awt.headless=true",
            "-Dfile.encoding=UTF-8",
            "-Dlog4j2.level=INFO",
            # 64 MB by default, for a log that holds kilobytes here.
            "-Dzookeeper.preAllocSize=1024",
            "-cp",
            class_path,
            _MAIN_CLASS,
            str(config),
        ]
        self.process.start(command, folder=self.folder, environment=_ENVIRONMENT)

    def _wait_until_serving(self, log_position: int, timeout_s: float) -> bool:
        """False when the port turned out to be taken."""
        deadline = time.monotonic() + timeout_s
        assert self.port is not None
        folder = self.folder / "data"
        while True:
            # 1 before 2: what it said with its last breath is not missed.
            is_alive = self.process.is_alive
            # 2
            with self.process.log_path.open("rb") as log:
                log.seek(log_position)
                if _PORT_TAKEN in log.read():
                    self.process.stop(5.0)
                    return False
            # A foreign server may answer on a port that ours is about to fail to bind.
            if (found := zookeeper_folder(self.port)) is not None and found.is_relative_to(folder):
                return True
            if not is_alive:
                self.process.require_alive()
            if time.monotonic() >= deadline:
                last = self.process.last_log_line()
                self.process.kill()
                raise ProcessFailed(
                    f"ZooKeeper did not serve within {timeout_s:.0f} s: {last} (log: {self.process.log_path})"
                )
            time.sleep(0.01)

    def _log_size(self) -> int:
        try:
            return self.process.log_path.stat().st_size
        except FileNotFoundError:
            return 0


def java_property(value: str) -> str:
    """As it stands in a property file that Java's Properties.load reads: ASCII, the rest as \\u and UTF-16 units."""
    escaped = value.replace("\\", "\\\\")
    units = escaped.encode("utf-16-be", "surrogatepass")
    codes = [int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2)]
    return "".join(chr(code) if 0x20 <= code < 0x7F else f"\\u{code:04x}" for code in codes)


def _class_path() -> str:
    pyspark = importlib.util.find_spec("pyspark")
    folder = Path(pyspark.origin).parent / "jars" if pyspark is not None and pyspark.origin is not None else None
    jars = sorted(folder.glob("*.jar")) if folder is not None else []
    chosen = [jar for jar in jars if jar.name.startswith(_JARS) and not jar.name.startswith(_NEEDLESS_JARS)]
    if not any(jar.name.startswith("zookeeper-") for jar in chosen):
        raise ZooKeeperJarsMissing(
            "the embedded ZooKeeper needs the jars of pyspark: pip install '.[local]' in the checkout, "
            "or give brokers the address of a ZooKeeper of your own"
        )
    return os.pathsep.join(str(jar) for jar in chosen)
