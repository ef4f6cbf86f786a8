"""Jobs for tests of the computing seam; here, because a worker process runs only what a module of the package has."""

from __future__ import annotations

from strandline.runtime.disk import Disk, read_file


def echo(disk: Disk, *values: object) -> list[object]:
    """Its arguments."""
    return list(values)


def read(disk: Disk, path: str) -> bytes:
    """The content of a small file."""
    return read_file(disk, path)


def fail(disk: Disk, text: str) -> None:
    """ZeroDivisionError."""
    raise ZeroDivisionError(text)


def spin_until(disk: Disk, started: str, finish: str) -> str:
    """Computes from the moment when it makes the file `started` until there is a file `finish`."""
    disk.open(started, create=True).close()
    while not disk.exists(finish):
        pass
    return "finished"


def count(disk: Disk, memory: dict[str, int], step: int) -> int:
    """The sum of the steps of its session so far; a step of 0 fails."""
    if not step:
        raise ZeroDivisionError
    memory["sum"] = memory.get("sum", 0) + step
    return memory["sum"]


def spin_with_memory(disk: Disk, memory: dict[str, int], started: str, finish: str) -> str:
    """`spin_until` in a session."""
    return spin_until(disk, started, finish)


def return_a_set(disk: Disk) -> set[int]:
    """What no message can hold."""
    return {1}


def print_and_echo(disk: Disk, value: str) -> str:
    """Prints, which must not reach the parent as a frame."""
    print(value, flush=True)  # noqa: T201
    return value
