"""A running Kafka and a broker of ours keep each other out of a folder by `.lock`."""

from __future__ import annotations

import errno
import fcntl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest

from strandline.cli.java import find_java
from strandline.runtime.disk_posix import PosixDisk
from strandline.storage.inspection.overlay_disk import OverlayDisk

JARS = Path(pyspark.__file__).parent / "jars"
KAFKAS_LOCK = """
public class Lock {
    public static void main(String[] arguments) throws Exception {
        System.out.println(new java.io.RandomAccessFile(arguments[0], "rw").getChannel().tryLock() != null);
        System.in.read();
    }
}
"""


@pytest.fixture
def lock_file(tmp_path: Path) -> Path:
    return tmp_path / ".lock"


@pytest.fixture
def kafka_locks(tmp_path: Path, lock_file: Path) -> Iterator[Callable[[], bool]]:
    """Has a Java program take the lock as a Kafka does, until the test is over; says whether it got it. (A compiler
    that Spark carries runs it: a Java runtime need not have one.)"""
    (tmp_path / "Lock.java").write_text(KAFKAS_LOCK)
    class_path = ":".join(str(jar) for pattern in ("janino-*", "commons-compiler-*") for jar in JARS.glob(pattern))
    started: list[subprocess.Popen[str]] = []

    def lock() -> bool:
        program = ["org.codehaus.janino.SimpleCompiler", f"{tmp_path}/Lock.java", "Lock", str(lock_file)]
        command = [str(find_java().command), "-cp", class_path, *program]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        return {"true\n": True, "false\n": False}[process.stdout.readline()]

    yield lock
    for process in started:
        process.communicate()


def test_a_kafka_does_not_get_the_lock_that_we_hold(lock_file: Path, kafka_locks: Callable[[], bool]) -> None:
    lock = PosixDisk().lock(str(lock_file))
    with pytest.raises(BlockingIOError):  # another descriptor of the file is closed
        PosixDisk().lock(str(lock_file))
    assert not kafka_locks()
    lock.release()
    assert kafka_locks()


def test_a_start_and_a_check_do_not_get_the_lock_that_a_kafka_holds(
    lock_file: Path, kafka_locks: Callable[[], bool]
) -> None:
    assert kafka_locks()
    for disk in (PosixDisk(), OverlayDisk(PosixDisk())):
        with pytest.raises(BlockingIOError):
            disk.lock(str(lock_file))


def test_where_the_kernel_has_flock_only_that_keeps_others_out(
    lock_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_offered(*_: object) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(fcntl, "fcntl", not_offered)
    path = str(lock_file)
    held = PosixDisk().lock(path)
    with pytest.raises(BlockingIOError):
        PosixDisk().lock(path)
    held.release()
    PosixDisk().lock(path).release()
