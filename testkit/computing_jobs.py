"""Jobs for tests of the computing seam: a worker process can only run what a module of the package has."""

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


def return_a_set(disk: Disk) -> set[int]:
    """What no message can hold."""
    return {1}


def print_and_echo(disk: Disk, value: str) -> str:
    """Prints, which must not reach the parent as a frame."""
    print(value, flush=True)  # noqa: T201
    return value
