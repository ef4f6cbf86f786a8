"""What commands reach the outside through: clients of the cluster, the clock. Tests hand in a fake one.

The clients are imported when the first one is made, so that `--help` and usage errors stay quick.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from strandline.cli.cluster_state import DATA_VARIABLE, DEFAULT_DATA_DIR, brokers_with_data, read_state

if TYPE_CHECKING:
    from strandline import Admin, Consumer, Producer
    from strandline.cli.cluster import EmbeddedCluster

T = TypeVar("T")

EXIT_INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 + SIGINT, as shells have it."""
EXIT_DIFFERENT = 3
"""Exit code of a comparison that was done and found a difference: not that of a failure."""

JSON_VERSION = 1
"""Of the shape of `--output json`: a field that goes or changes its meaning makes it 2, one more does not."""

DEFAULT_BOOTSTRAP = "localhost:9092"
BOOTSTRAP_VARIABLE = "STRANDLINE_BOOTSTRAP"


@dataclass
class CommandLine:
    """What is known of the command line that runs, beside what its command is handed."""

    data_dir: Path | None = None
    """--data: the folder of the cluster that is meant."""
    unless_reached: str = ""
    """What to say, too, should no broker answer: nobody has named the address."""
    unless_answered: str = ""
    """What to say, too, should brokers tell their versions and not answer in time what is asked then."""
    command: str = ""
    """As JSON has it, `groups.reset`; as far as it is understood."""
    as_json: bool = False
    """--output json is asked for, though the rest may be wrong."""
    is_answered: bool = False
    """The one object is out."""


class Session:
    """Makes the synchronous clients and knows the time."""

    def __init__(self) -> None:
        self.line = CommandLine()

    def producer(self, bootstrap_servers: str, **settings: Any) -> Producer:
        from strandline import Producer

        return _made(Producer, bootstrap_servers, settings)

    def consumer(self, bootstrap_servers: str, **settings: Any) -> Consumer:
        from strandline import Consumer

        return _made(Consumer, bootstrap_servers, settings)

    def admin(self, bootstrap_servers: str, **settings: Any) -> Admin:
        from strandline import Admin

        return _made(Admin, bootstrap_servers, settings)

    def running_bootstrap(self, data_dir: Path) -> str | None:
        """Address of the embedded cluster in that folder, None unless it is up. StateUnreadable."""
        from strandline.cli.cluster import running_bootstrap

        return running_bootstrap(data_dir)

    def running_zookeeper(self, data_dir: Path) -> str | None:
        """As `running_bootstrap`, its ZooKeeper."""
        members = read_state(data_dir) or {}
        zookeeper = members.get("zookeeper")
        return f"127.0.0.1:{zookeeper.port}" if zookeeper is not None and zookeeper.process.is_alive else None

    def has_cluster(self, data_dir: Path) -> bool:
        """Whether one was ever started in that folder; it may be down."""
        return brokers_with_data(data_dir) > 0

    @contextmanager
    def temporary_cluster(self, brokers: int) -> Iterator[EmbeddedCluster]:
        """An embedded cluster that serves, in a folder of its own; nothing is left of it. What EmbeddedCluster
        raises."""
        from strandline.cli.temporary_cluster import temporary_cluster

        with temporary_cluster(brokers) as cluster:
            yield cluster

    def temporary_room(self) -> tuple[str, int]:
        """The folder in which `temporary_cluster` makes its own, and how many bytes are free there."""
        import shutil
        import tempfile

        folder = tempfile.gettempdir()
        return folder, shutil.disk_usage(folder).free

    def registered_brokers(self, zookeeper_connect: str, timeout_ms: int) -> dict[int, int]:
        """Broker id → when it registered, by its clock. CoordinationError where ZooKeeper does not answer."""
        from strandline.cli.doctor_zookeeper import registered_brokers

        return registered_brokers(zookeeper_connect, timeout_ms)

    def run_id(self) -> int:
        """64 bits that tell this run of a command from any other."""
        from strandline.runtime.randomness import system_random

        return system_random("run id").getrandbits(64)

    def now_ms(self) -> int:
        """Wall clock, milliseconds since 1970: for offsets given as `@-1h`."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def _made(kind: Callable[..., T], bootstrap_servers: str, settings: dict[str, Any]) -> T:
    """A client; raises UsageError for a setting that does not exist or cannot have that value."""
    from strandline.client.errors import InvalidClientConfig

    try:
        return kind(**{"bootstrap_servers": bootstrap_servers, **settings})
    except InvalidClientConfig as error:
        raise click.UsageError(str(error)) from None


def session_of(ctx: click.Context) -> Session:
    """The session of this command line."""
    session = ctx.find_object(Session)
    assert session is not None, "run gives it"
    return session


def bootstrap_of(session: Session, given: str | None) -> str:
    """Which cluster. What is named counts, and no other cluster is asked in its place:

    1. the option, --bootstrap or --data; UsageError for both, or for an address that cannot be one
    2. $STRANDLINE_BOOTSTRAP; an empty variable counts as none, as shells have them
    3. $STRANDLINE_DATA, likewise
    4. nothing is named: the cluster of the default folder if it is up, else localhost:9092

    ClusterIsDown: a folder is named, and its cluster does not run.
    """
    line = session.line
    if given is not None and line.data_dir is not None:
        raise click.UsageError("--bootstrap and --data each name a cluster; give one of them")
    if given is not None:  # also an empty one, of a script's unset variable: it means no other cluster
        return _checked(given)
    if line.data_dir is None and (address := os.environ.get(BOOTSTRAP_VARIABLE)):
        return _checked(address)
    folder, named_by = cluster_folder(session)
    running = session.running_bootstrap(folder)
    if running is not None:
        return running
    if named_by:
        raise ClusterIsDown(_down_text(session, folder, named_by))
    start = (
        f"the one in {folder} is down: strandline up starts it"
        if session.has_cluster(folder)
        else "strandline up starts one here"
    )
    line.unless_reached = f"no cluster was named (--bootstrap, --data), and {start}"
    return DEFAULT_BOOTSTRAP


class ClusterIsDown(click.ClickException):
    """A folder was named whose cluster does not run; the text names it and the remedy."""


def cluster_folder(session: Session) -> tuple[Path, str]:
    """The folder of the embedded cluster that is meant, and what names it; nothing does where it is the default."""
    if session.line.data_dir is not None:
        return session.line.data_dir, "--data"
    if folder := os.environ.get(DATA_VARIABLE):
        return Path(folder), f"${DATA_VARIABLE}"
    return DEFAULT_DATA_DIR, ""


def _down_text(session: Session, folder: Path, named_by: str) -> str:
    why = "the cluster there is down" if session.has_cluster(folder) else "there is no cluster"
    return f"{named_by} is {folder}, and {why}: strandline up --data {shlex.quote(str(folder))} starts it"


def _checked(address: str) -> str:
    for part in address.split(","):
        host, colon, port = part.strip().rpartition(":")
        if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
            raise click.UsageError(f"--bootstrap '{part.strip()}' is not host:port; give for example localhost:9092")
    return address
