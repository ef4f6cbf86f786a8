"""Containers on a real engine: `make docker-test`. No part of `make test`: root and Debian's packages are needed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the tests are imported one by one: their common module lies here
if os.environ.get("STRANDLINE_DOCKER"):
    from engine import BASE_IMAGE, Compose, Engine, NotHere, running_engine
else:
    collect_ignore_glob = ["test_*.py"]

NOT_HERE = 77
"""The exit code for "this machine cannot"; `scripts/docker-test` knows it."""

NewCompose = Callable[[str], "Compose"]


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    with ExitStack() as stack:
        try:
            engine = stack.enter_context(running_engine())
            engine.provide_images()
        except NotHere as reason:
            pytest.exit(f"docker-test: not run: {reason}", returncode=NOT_HERE)
        yield engine


@pytest.fixture(scope="session")
def ports() -> list[int]:
    """Three free ports of this machine."""
    from strandline.runtime.loopback import free_port

    taken: list[int] = []
    for _ in range(3):
        taken.append(free_port(None, taken=frozenset(taken)))
    return taken


@pytest.fixture(scope="session")
def new_compose(engine: Engine, ports: list[int]) -> NewCompose:
    """A compose file of deploy/, by its name; the images are built with the first one."""
    variables = {
        "BASE_IMAGE": BASE_IMAGE,
        **{f"BROKER_{number}_PORT": str(port) for number, port in enumerate(ports, 1)},
    }

    def make(file: str) -> Compose:
        return Compose(engine, file, "strandline-test-" + file.split(".")[1], variables)

    return make
