"""The embedded cluster: one ZooKeeper and some brokers as processes of this machine, on loopback ports.

`EmbeddedCluster` is what `strandline up`, the demo, the integration tests and the benchmarks share. Its data folder:

    cluster.json              what runs (cluster_state)
    overrides.properties      keys of the user's own for all brokers (cluster_overrides)
    zookeeper/                data, configuration and log of ZooKeeper
    broker-<id>/              server.properties, broker.log, state-change.log, controller.log, the logs under data/

Broker ids count from 1. The processes outlive the command that started them. Ports, of listeners and admin ports, are
kept from one start to the next as long as they are free. Nothing is ever killed by name or by a bare pid (process.py).
"""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from strandline.cli.cluster_overrides import checked, keep_overrides, kept_overrides, property_lines
from strandline.cli.cluster_probe import ask_brokers, wait_ready
from strandline.cli.cluster_state import Member, brokers_with_data, locked, read_state, write_state
from strandline.cli.process import Daemon, ProcessFailed, ProcessId
from strandline.cli.wording import counted
from strandline.cli.zookeeper import EmbeddedZooKeeper
from strandline.protocol.messages import MetadataResponse
from strandline.runtime.config.listeners import parse_address
from strandline.runtime.loopback import LOOPBACK, free_port
from strandline.runtime.network import CANNOT_LISTEN, Address

DEFAULT_BROKERS = 3
DEFAULT_BASE_PORT = 9092
ADMIN_BASE_PORT = 9644
SESSION_TIMEOUT_MS = 6000
READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0

_PORTS_TRIED = 5
_ZOOKEEPER = "zookeeper"
_ADMIN_LISTENER = "admin.listener"


class ClusterAlreadyUp(Exception):
    """Everything that `up` would start is running."""


class ClusterNotUp(Exception):
    """No cluster is recorded in the data folder."""


class DataOfMoreBrokers(Exception):
    """The data folder belongs to a cluster with more brokers than asked for."""


class EmbeddedCluster:
    """One cluster in one data folder; also a context manager that starts and stops it.

    `properties` are added to every broker's server.properties, `properties_of` (broker id → keys) to those of single
    ones. `base_port`: broker n prefers base_port + n − 1, and ADMIN_BASE_PORT + n − 1 as its admin port; None: any free
    ports. An `admin.listener` in `properties` is broker 1's, and those of the others count up from it. Errors of the
    methods that start something: ProcessFailed (names the log), JavaNotFound, ZooKeeperJarsMissing.
    """

    def __init__(
        self,
        data_dir: Path,
        brokers: int = DEFAULT_BROKERS,
        *,
        properties: Mapping[str, str] | None = None,
        base_port: int | None = None,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
    ) -> None:
        self.data_dir = data_dir.resolve()
        self.broker_ids = list(range(1, brokers + 1))
        self.properties = dict(properties or {})
        self.properties_of: dict[int, dict[str, str]] = {}
        self.base_port = base_port
        self.session_timeout_ms = session_timeout_ms
        self.zookeeper = EmbeddedZooKeeper(self.data_dir / _ZOOKEEPER)
        self.brokers = {
            broker_id: Daemon(f"broker {broker_id}", self.broker_folder(broker_id) / "broker.log")
            for broker_id in self.broker_ids
        }
        self.warnings: list[str] = []
        """Of starts: what is not where somebody would look for it."""
        self._ports: dict[int, int] = {}
        self._admin_ports: dict[int, Address | None] = {}
        self._foreign_ports: set[int] = set()
        """They were free, and taken when a broker was to listen there."""
        self._own: set[ProcessId] = set()
        """Every process that this object ever started or adopted: only these may leave the record again."""

    @classmethod
    def recorded(cls, data_dir: Path) -> EmbeddedCluster:
        """The cluster that an earlier command started there, alive or not. ClusterNotUp, StateUnreadable."""
        members = read_state(data_dir)
        if members is None:
            raise ClusterNotUp(
                f"no cluster is up in {data_dir.resolve()}; start one: strandline up, or name its --data"
            )
        cluster = cls(data_dir, max(_broker_ids(members), default=0))
        cluster.adopt(members)
        return cluster

    def adopt(self, members: Mapping[str, Member]) -> None:
        """Take charge of the processes that an earlier command started, and of their ports."""
        for name, member in members.items():
            self._own.add(member.process)
            if name == _ZOOKEEPER:
                self.zookeeper.fix_port(member.port)
                self.zookeeper.process.adopt(member.process)
            else:
                broker_id = _broker_id(name)
                self._ports[broker_id] = member.port
                self.brokers[broker_id].adopt(member.process)

    # --- the whole cluster -------------------------------------------------------------------------------------

    def start(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Start what is not running and wait until every broker serves. On a failure, what this call started is
        stopped again. ClusterBusy, ClusterAlreadyUp besides the errors above."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        with locked(self.data_dir):
            missing = self.dead_members()
            if not missing or self._runs_elsewhere():
                raise ClusterAlreadyUp(
                    f"the cluster in {self.data_dir} is up; strandline status shows it, strandline down stops it"
                )
            try:
                if _ZOOKEEPER in missing:
                    self.start_zookeeper()
                for broker_id in self.broker_ids:
                    if _broker_name(broker_id) in missing:
                        self.start_broker(broker_id, wait=False)
                self._wait_ready_on_free_ports(missing, timeout_s)
            except BaseException:
                self._stop_members(missing, timeout_s=2.0)
                raise

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """SIGTERM to the brokers, SIGKILL after `timeout_s`, then ZooKeeper; the data stays. Idempotent. Touches only
        what this object started or adopted."""
        if self.data_dir.exists():
            with locked(self.data_dir):
                self._stop_members([_ZOOKEEPER, *map(_broker_name, self.broker_ids)], timeout_s)

    def kill(self) -> None:
        """SIGKILL to all, and wait until they are gone: for a cluster whose data nobody needs."""
        for daemon in self._daemons().values():
            daemon.signal(signal.SIGKILL)
        for daemon in self._daemons().values():
            daemon.kill()

    def dead_members(self) -> list[str]:
        """Names of what should run and does not: `zookeeper`, `broker-<id>`."""
        return [name for name, daemon in self._daemons().items() if not daemon.is_alive]

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S, broker_ids: Sequence[int] | None = None) -> None:
        """Until each of these brokers (default: all) is registered and answers Metadata with all of them in it.
        ProcessFailed when one ends meanwhile or after `timeout_s`, in which none got on with loading its logs."""
        wanted = self.broker_ids if broker_ids is None else list(broker_ids)
        wait_ready({broker_id: (self.brokers[broker_id], self.address(broker_id)) for broker_id in wanted}, timeout_s)

    def metadata(self, topics: Sequence[str] | None = None) -> MetadataResponse | None:
        """What the first living broker answers (topics None: all); None when nobody answers."""
        for broker_id in self.broker_ids:
            if self.brokers[broker_id].is_alive and broker_id in self._ports:
                answers = ask_brokers({broker_id: self.address(broker_id)}, topics)
                if broker_id in answers:
                    return answers[broker_id]
        return None

    def __enter__(self) -> EmbeddedCluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- single members ----------------------------------------------------------------------------------------

    def start_zookeeper(self) -> None:
        """Start it, after the first time on the same port, and wait until it serves."""
        if self.zookeeper.port is None:
            earlier = _port_in(self.zookeeper.folder / "zookeeper.properties", r"^clientPort=(\d+)")
            self.zookeeper.port = free_port(earlier) if earlier is not None else None
        self.zookeeper.start(on_launched=self._record)

    def stop_zookeeper(self, timeout_s: float = 10.0) -> None:
        """SIGTERM; its data stays."""
        self.zookeeper.stop(timeout_s)

    def start_broker(self, broker_id: int, *, wait: bool = True, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Start one broker on its folder and port; `wait` until it is registered and serves."""
        folder = self.broker_folder(broker_id)
        (folder / "data").mkdir(parents=True, exist_ok=True)
        config = folder / "server.properties"
        if broker_id not in self._ports:
            self._ports[broker_id] = self._choose_port(broker_id, config)
        if broker_id not in self._admin_ports:
            self._admin_ports[broker_id] = self._choose_admin_port(broker_id, config)
        lines = property_lines(self._broker_properties(broker_id).items())
        config.write_text(
            "# Written anew at each start by `strandline up`: what is changed here is lost.\n" + "".join(lines),
            encoding="utf-8",
        )
        self.brokers[broker_id].start(self.broker_command(config), folder=folder)
        self._record()
        if wait:
            self.wait_ready(timeout_s, [broker_id])

    def broker_command(self, config: Path) -> list[str]:
        """What runs a broker on this server.properties."""
        # -P: a folder of the user's that happens to be called like one of ours must not be imported.
        return [sys.executable, "-P", "-m", "strandline.cli", "broker", "--config", str(config)]

    def kill_broker(self, broker_id: int, signal_number: int = signal.SIGKILL) -> None:
        """Send a signal; after SIGKILL wait until the process is gone."""
        if signal_number == signal.SIGKILL:
            self.brokers[broker_id].kill()
        else:
            self.brokers[broker_id].signal(signal_number)

    def pause_broker(self, broker_id: int) -> None:
        """SIGSTOP: the process keeps its connections and does nothing any more when this returns."""
        self.brokers[broker_id].pause()

    def resume_broker(self, broker_id: int) -> None:
        """SIGCONT."""
        self.kill_broker(broker_id, signal.SIGCONT)

    def stop_broker(self, broker_id: int, timeout_s: float = STOP_TIMEOUT_S) -> int | None:
        """Controlled shutdown by SIGTERM; SIGKILL after `timeout_s`. The exit code where this process started it."""
        return self.brokers[broker_id].stop(timeout_s)

    # --- where things are --------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """`host:port,…` of all brokers, alive or not."""
        return ",".join(str(self.address(broker_id)) for broker_id in self.broker_ids)

    def address(self, broker_id: int) -> Address:
        """Where the broker listens; KeyError before its first start."""
        return Address(LOOPBACK, self._ports[broker_id])

    def admin_address(self, broker_id: int) -> Address | None:
        """Where its admin port listens; None: it is switched off. KeyError before this object started it."""
        return self._admin_ports[broker_id]

    def broker_folder(self, broker_id: int) -> Path:
        return self.data_dir / _broker_name(broker_id)

    def log_dir(self, broker_id: int) -> Path:
        """The broker's `log.dirs`: one folder per partition below."""
        return self.broker_folder(broker_id) / "data"

    # --- inside ------------------------------------------------------------------------------------------------

    def _daemons(self) -> dict[str, Daemon]:
        brokers = {_broker_name(broker_id): daemon for broker_id, daemon in self.brokers.items()}
        return {_ZOOKEEPER: self.zookeeper.process, **brokers}

    def _runs_elsewhere(self) -> bool:
        """Are living processes recorded that this object did not start or adopt?"""
        daemons = self._daemons()
        return any(
            member.process.is_alive and (name not in daemons or daemons[name].id != member.process)
            for name, member in (read_state(self.data_dir) or {}).items()
        )

    def _broker_properties(self, broker_id: int) -> dict[str, str]:
        addresses = {
            "listeners": f"PLAINTEXT://{self.address(broker_id)}",
            "zookeeper.connect": self.zookeeper.address,
        }
        admin = {_ADMIN_LISTENER: str(self._admin_ports[broker_id] or "")}
        single = self.properties_of.get(broker_id, {})
        return {**self.own_properties(broker_id), **addresses, **self.properties, **admin, **single}

    def own_properties(self, broker_id: int) -> dict[str, str]:
        """The keys that the cluster sets itself; addresses stand for any as long as nothing runs."""
        count = len(self.broker_ids)
        return {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://{LOOPBACK}:0",
            "zookeeper.connect": f"{LOOPBACK}:2181",
            "zookeeper.session.timeout.ms": str(self.session_timeout_ms),
            "log.dirs": str(self.log_dir(broker_id)),
            # state-change.log and controller.log; the main log is the process's standard error.
            "log.folder": str(self.broker_folder(broker_id)),
            "default.replication.factor": str(min(3, count)),
            "min.insync.replicas": str(min(2, count)),
            # When all brokers stop together, the last ones have nobody to hand their partitions to: ask again soon.
            "controlled.shutdown.retry.backoff.ms": "500",
        }

    def _choose_port(self, broker_id: int, config: Path) -> int:
        earlier = _port_in(config, r"^listeners=PLAINTEXT://[^:\s]+:(\d+)")
        preferred = None if self.base_port is None else self.base_port + broker_id - 1
        return free_port(earlier if earlier is not None else preferred, taken=self._taken())

    def _choose_admin_port(self, broker_id: int, config: Path) -> Address | None:
        told = self.properties.get(_ADMIN_LISTENER)
        first = Address(LOOPBACK, 0) if told is None else parse_address(_ADMIN_LISTENER, told)
        if first is None:
            return None
        preferred = first.port + broker_id - 1 if first.port else _port_in(config, rf"^{_ADMIN_LISTENER}=\S+:(\d+)")
        if not preferred:
            preferred = None if self.base_port is None else ADMIN_BASE_PORT + broker_id - 1
        port = free_port(preferred, taken=self._taken())
        if preferred not in (None, port):
            self.warnings.append(f"the admin port of broker {broker_id} is {port}, since {preferred} is not free")
        return Address(first.host, port)

    def _wait_ready_on_free_ports(self, started: Sequence[str], timeout_s: float) -> None:
        """A port that was found free may be taken when its broker binds it: then that broker gets another one."""
        for _ in range(_PORTS_TRIED):
            try:
                return self.wait_ready(timeout_s)
            except ProcessFailed:
                unheard = [
                    each for each in self.broker_ids if _broker_name(each) in started and self._found_no_port(each)
                ]
                if not unheard:
                    raise
            for broker_id in unheard:
                admin = self._admin_ports.pop(broker_id)
                self._foreign_ports |= {self._ports.pop(broker_id), *([admin.port] if admin is not None else [])}
                self.start_broker(broker_id, wait=False)
        self.wait_ready(timeout_s)

    def _found_no_port(self, broker_id: int) -> bool:
        broker = self.brokers[broker_id]
        line = broker.last_log_line()
        return not broker.is_alive and CANNOT_LISTEN in line and os.strerror(errno.EADDRINUSE) in line

    def _taken(self) -> frozenset[int]:
        admin = [each.port for each in self._admin_ports.values() if each]
        return frozenset([*self._ports.values(), *admin, *self._foreign_ports])

    def _record(self) -> None:
        """Write down what runs. What somebody else recorded there stays unless a process of ours took its place."""
        ports = {_ZOOKEEPER: self.zookeeper.port, **{_broker_name(key): port for key, port in self._ports.items()}}
        recorded = read_state(self.data_dir) or {}
        members = {name: member for name, member in recorded.items() if member.process not in self._own}
        for name, daemon in self._daemons().items():
            port = ports.get(name)
            if daemon.id is not None and port is not None:
                self._own.add(daemon.id)
                members[name] = Member(name, daemon.id, port)
        write_state(self.data_dir, members)

    def _stop_members(self, names: Iterable[str], timeout_s: float) -> None:
        """Brokers first, all at once; ZooKeeper last, since a controlled shutdown needs it."""
        names = list(names)
        brokers = [daemon for name, daemon in self._daemons().items() if name in names and name != _ZOOKEEPER]
        for daemon in brokers:
            if daemon.signal(signal.SIGTERM):
                daemon.signal(signal.SIGCONT)
        deadline = time.monotonic() + timeout_s
        for daemon in brokers:
            daemon.wait(max(0.1, deadline - time.monotonic()))
            daemon.id = None
        if _ZOOKEEPER in names:
            self.zookeeper.stop()
            self.zookeeper.process.id = None
        self._record()


def running_bootstrap(data_dir: Path) -> str | None:
    """`host:port,…` of the living brokers of the cluster recorded there; None when there is none. StateUnreadable."""
    try:
        cluster = EmbeddedCluster.recorded(data_dir)
    except ClusterNotUp:
        return None
    alive = [str(cluster.address(broker_id)) for broker_id in cluster.broker_ids if cluster.brokers[broker_id].is_alive]
    return ",".join(alive) or None


def up(
    data_dir: Path,
    brokers: int | None = None,
    base_port: int = DEFAULT_BASE_PORT,
    overrides: Mapping[str, str] | None = None,
    warn: Callable[[str], None] = lambda warning: None,
) -> EmbeddedCluster:
    """Start a cluster, or the dead members of one that is partly up. `brokers` None: as many as the folder has data
    of, else 3. `overrides`: broker keys, added to those of earlier starts and kept for later ones; `warn` hears what
    is doubtful about them, and which admin ports are not where they should be. ClusterAlreadyUp, DataOfMoreBrokers,
    OverrideRefused, and what EmbeddedCluster raises."""
    members = read_state(data_dir) or {}
    if members and not any(member.process.is_alive for member in members.values()):
        # Of a machine that went down, say: nothing knows the old addresses any more, so start afresh on the data.
        write_state(data_dir, {})
        members = {}
    # A start that failed leaves no record of its brokers, but their data.
    recorded, earlier = _broker_ids(members), brokers_with_data(data_dir)
    known = max([earlier, *recorded])
    if recorded and brokers not in (None, known):
        raise ClusterAlreadyUp(
            f"a cluster of {counted(known, 'broker')} is recorded in {data_dir.resolve()}; strandline down stops it"
        )
    if brokers is not None and brokers < earlier:
        raise DataOfMoreBrokers(
            f"{data_dir.resolve()} has the data of {counted(earlier, 'broker')}; give --brokers {earlier} "
            "or another --data"
        )
    cluster = EmbeddedCluster(data_dir, brokers or known or DEFAULT_BROKERS, base_port=base_port)
    cluster.adopt(members)
    cluster.properties = {**kept_overrides(data_dir), **(overrides or {})}
    for warning in checked(cluster.properties, cluster.own_properties(1)):
        warn(warning)
    if overrides and any(daemon.is_alive for daemon in cluster.brokers.values()):
        raise ClusterAlreadyUp(
            f"brokers of the cluster in {cluster.data_dir} run, and overrides count for all of them; first stop it: "
            "strandline down"
        )
    cluster.start()
    for warning in cluster.warnings:
        warn(warning)
    if overrides:
        keep_overrides(cluster.data_dir, cluster.properties)
    return cluster


def down(data_dir: Path, timeout_s: float = STOP_TIMEOUT_S) -> EmbeddedCluster:
    """Stop the recorded cluster. ClusterNotUp, ClusterBusy."""
    cluster = EmbeddedCluster.recorded(data_dir)
    cluster.stop(timeout_s)
    return cluster


def _broker_name(broker_id: int) -> str:
    return f"broker-{broker_id}"


def _broker_id(name: str) -> int:
    return int(name.removeprefix("broker-"))


def _broker_ids(members: Iterable[str]) -> list[int]:
    return [_broker_id(name) for name in members if name != _ZOOKEEPER]


def _port_in(config: Path, pattern: str) -> int | None:
    """The port that an earlier start wrote into a configuration."""
    try:
        found = re.search(pattern, config.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
    except FileNotFoundError:
        return None
    return int(found[1]) if found else None
