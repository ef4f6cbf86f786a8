"""Containers on a real engine: `make docker-test`. No part of `make test`: root and Debian's packages are needed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

if os.environ.get("STRANDLINE_DOCKER"):
    from docker.engine import (
        BASE_IMAGE,
        PROMETHEUS_IMAGE,
        ZOOKEEPER_IMAGE,
        Compose,
        Engine,
        LeftOver,
        NotHere,
        at_once,
        build,
        running_engine,
    )

    # An end by SIGTERM, as a time limit sends it, takes the engine down as Ctrl-C does.
    # (A shell that runs it in the background has it ignore Ctrl-C.)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
else:
    collect_ignore = ["test_compose.py", "test_single.py"]

NewCompose = Callable[[str], "Compose"]


@pytest.fixture(scope="session")
def ports() -> list[int]:
    """Three free ports of this machine."""
    from strandline.runtime.loopback import free_port

    taken: list[int] = []
    for _ in range(3):
        taken.append(free_port(None, taken=frozenset(taken)))
    return taken


@pytest.fixture(scope="session")
def prometheus_port(ports: list[int]) -> int:
    from strandline.runtime.loopback import free_port

    return free_port(None, taken=frozenset(ports))


@pytest.fixture(scope="session")
def new_compose(ports: list[int], prometheus_port: int) -> Iterator[NewCompose]:
    """A compose file of deploy/, by its name, on an engine that has its images."""
    variables = {
        "BASE_IMAGE": BASE_IMAGE,
        **{f"BROKER_{number}_PORT": str(port) for number, port in enumerate(ports, 1)},
        "PROMETHEUS_PORT": str(prometheus_port),
    }

    def make(file: str) -> Compose:
        return Compose(engine, file, "strandline-test-" + file.split(".")[1], variables)

    def provide_others() -> None:
        for name in (ZOOKEEPER_IMAGE, PROMETHEUS_IMAGE):
            engine.provide(name)

    def build_ours() -> None:
        for service in ("broker-1", "spark"):  # one after the other: the second one begins with layers of the first
            build(make("docker-compose.yml"), service)

    with ExitStack() as stack:
        try:
            engine: Engine = stack.enter_context(running_engine())
            engine.provide(BASE_IMAGE)
            at_once(provide_others, build_ours)
        except NotHere as reason:
            pytest.exit(f"docker-test: not run: {reason}", returncode=0)
        except LeftOver as reason:
            pytest.exit(f"docker-test: {reason}", returncode=1)
        yield make
