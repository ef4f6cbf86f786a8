"""What commands reach the outside through: clients of the cluster, the clock. Tests hand in a fake one.

The clients are imported when the first one is made, so that `--help` and usage errors stay quick.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from strandline import Admin, Consumer, Producer

T = TypeVar("T")

EXIT_INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 + SIGINT, as shells have it."""
EXIT_DIFFERENT = 3
"""Exit code of a comparison that was done and found a difference: not that of a failure."""

DEFAULT_BOOTSTRAP = "localhost:9092"
BOOTSTRAP_VARIABLE = "STRANDLINE_BOOTSTRAP"


class Session:
    """Makes the synchronous clients and knows the time."""

    def producer(self, bootstrap_servers: str, **settings: Any) -> Producer:
        from strandline import Producer

        return _made(Producer, bootstrap_servers, settings)

    def consumer(self, bootstrap_servers: str, **settings: Any) -> Consumer:
        from strandline import Consumer

        return _made(Consumer, bootstrap_servers, settings)

    def admin(self, bootstrap_servers: str, **settings: Any) -> Admin:
        from strandline import Admin

        return _made(Admin, bootstrap_servers, settings)

    def running_bootstrap(self) -> str | None:
        """Address of the embedded cluster of $STRANDLINE_DATA or the default folder, None unless it is up."""
        from strandline.cli.cluster import DEFAULT_DATA_DIR, running_bootstrap

        return running_bootstrap(Path(os.environ.get("STRANDLINE_DATA") or DEFAULT_DATA_DIR))

    def running_zookeeper(self) -> str | None:
        """As `running_bootstrap`, its ZooKeeper."""
        from strandline.cli.cluster import DEFAULT_DATA_DIR
        from strandline.cli.cluster_state import read_state

        members = read_state(Path(os.environ.get("STRANDLINE_DATA") or DEFAULT_DATA_DIR)) or {}
        zookeeper = members.get("zookeeper")
        return f"127.0.0.1:{zookeeper.port}" if zookeeper is not None and zookeeper.process.is_alive else None

    def registered_brokers(self, zookeeper_connect: str, timeout_ms: int) -> dict[int, int]:
        """Broker id → when it registered, by its clock. CoordinationError where ZooKeeper does not answer."""
        from strandline.cli.doctor_zookeeper import registered_brokers

        return registered_brokers(zookeeper_connect, timeout_ms)

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
    """The session of this command line; a real one unless a test gave its own."""
    root = ctx.find_root()
    if root.obj is None:
        root.obj = Session()
    session: Session = root.obj
    return session


def bootstrap_of(session: Session, given: str | None) -> str:
    """Which cluster: the option, else STRANDLINE_BOOTSTRAP, else the embedded cluster if it is up, else localhost:9092.

    Raises UsageError for an address that cannot be one.
    """
    address = given or os.environ.get(BOOTSTRAP_VARIABLE)
    if not address:
        return session.running_bootstrap() or DEFAULT_BOOTSTRAP
    for part in address.split(","):
        host, colon, port = part.strip().rpartition(":")
        if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
            raise click.UsageError(f"--bootstrap '{part.strip()}' is not host:port; give for example localhost:9092")
    return address
