"""Groups of other people's clients under load: their members as processes, and what has to hold in the end.

A `Writer` of ours sends all the time, so what stands where is known from its acknowledgements; `Member`s write what
they read into files, line by line. Nothing waits for a fixed time.
"""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from compat.group_views import GroupObserver
from compat.other_clients import ENVIRONMENT, Client, ClientFailed, Read
from compat.real_kafka import wait_until
from strandline.client.sync_producer import Producer

PARTITIONS = 6
PATIENCE_S = 90.0
"""Several sessions, and a busy machine."""
_EVERY_S = 0.05
_PER_PARTITION = 2
Acked = dict[tuple[int, int], bytes]
"""(partition, offset) → value."""


class Writer:
    """A thread that sends some records to each partition again and again, until `stop`."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._is_told_to_stop = threading.Event()
        self._acked: Acked = {}
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"writer of {topic}", daemon=True)
        self._thread.start()

    def stop(self) -> Acked:
        """All of it is acknowledged."""
        self._is_told_to_stop.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        return self._acked

    def _run(self) -> None:
        try:
            with Producer(self._bootstrap, acks="all", linger_ms=5) as producer:
                sent = []
                while not self._is_told_to_stop.wait(_EVERY_S):
                    for place in range(PARTITIONS * _PER_PARTITION):
                        value = b"%d" % len(sent)
                        sent.append((value, producer.send(self._topic, value, partition=place % PARTITIONS)))
                for value, future in sent:
                    where = future.result()
                    self._acked[where.partition, where.offset] = value
        except BaseException as failure:  # told by who joins it
            self._failure = failure


class Member:
    """A process that reads in a group. What it printed outlives it."""

    def __init__(self, client: Client, command: Sequence[str], output: Path) -> None:
        self.name = f"{client.name} ({output.name})"
        self._client = client
        self._output = output
        self._errors = output.with_suffix(".errors")
        self._taken_bytes = 0
        self._read: list[Read] = []
        with output.open("wb") as out, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, env=ENVIRONMENT
            )

    def read(self) -> list[Read]:
        """So far, in order."""
        with self._output.open("rb") as output:
            output.seek(self._taken_bytes)
            new = output.read()
        whole = new[: new.rfind(b"\n") + 1]  # the last line is still being written, or never will be
        self._taken_bytes += len(whole)
        heard = [self._client.heard(line) for line in whole.splitlines()]
        self._read += [read for read in heard if read is not None]
        return self._read

    def require_alive(self) -> None:
        """ClientFailed."""
        if self._process.poll() is not None:
            errors = self._errors.read_text(errors="replace")[-3000:]
            raise ClientFailed(f"{self.name} ended with {self._process.returncode}: {errors}")

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait()

    def ask_to_leave(self) -> None:
        """SIGTERM."""
        self._process.terminate()

    def wait_left(self) -> None:
        self._process.wait(PATIENCE_S)


class Group:
    """Members of any clients in one group that reads one topic."""

    def __init__(self, bootstrap: str, topic: str, folder: Path) -> None:
        self.name = f"group-of-{topic}"
        self.observer = GroupObserver(bootstrap, self.name, topic, PARTITIONS)
        self.live: list[Member] = []
        self.dead: list[Member] = []
        self._bootstrap = bootstrap
        self._topic = topic
        self._folder = folder

    def add(self, client: Client, assignor: str | None = None) -> None:
        """Start a member."""
        command = client.member(self._bootstrap, self._topic, self.name, assignor)
        output = self._folder / f"{self._topic}-{len(self.live) + len(self.dead)}"
        self.live.append(Member(client, command, output))

    def kill(self, place: int) -> None:
        """SIGKILL to one of `live`."""
        member = self.live.pop(place)
        self.dead.append(member)
        member.kill()

    def wait_stable(self) -> None:
        """Until those who live, and nobody else, share all partitions."""

        def is_stable() -> bool:
            view = self.observer.view()
            return view is not None and view.shares(len(self.live), PARTITIONS)

        self.wait_until(is_stable, f"{self.name} is stable with {len(self.live)} members")

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """ClientFailed: a member ended by itself. The condition is looked at some times a second."""

        def holds() -> bool:
            for member in self.live:
                member.require_alive()
            return condition() or bool(time.sleep(_EVERY_S * 4))

        wait_until(holds, what, PATIENCE_S)

    def wait_read_on(self) -> None:
        """Until each of those who live has read something that it had not read before."""
        before = [len(member.read()) for member in self.live]
        self.wait_until(
            lambda: all(len(member.read()) > count for member, count in zip(self.live, before, strict=True)),
            f"every member of {self.name} reads on",
        )

    def wait_everywhere(self) -> None:
        """Until something of each partition is committed."""

        def is_everywhere() -> bool:
            committed = self.observer.committed() or {}
            return len(committed) == PARTITIONS and all(committed.values())

        self.wait_until(is_everywhere, f"{self.name} has read something of each partition")

    def wait_done(self) -> None:
        """Until everything in the topic is committed; nobody writes any more."""
        self.wait_until(self.observer.has_no_lag, f"{self.name} has no lag")

    def leave(self) -> None:
        """All leave in order, so that the group is empty without a session's end."""
        for member in self.live:
            member.ask_to_leave()
        for member in self.live:
            member.wait_left()
        view = self.observer.view()
        assert view is not None and view.state == "Empty", view

    def check_read(self, acked: Acked) -> None:
        """Each record at least once, where it stands and as it was sent, and nothing else."""
        read = {(each.partition, each.offset): each.value for member in self._all for each in member.read()}
        assert sorted(acked.keys() - read.keys()) == [], "not read"
        assert sorted(read.keys() - acked.keys()) == [], "read, and not acknowledged"
        assert [at for at, value in acked.items() if read[at] != value] == []

    def counts(self) -> list[int]:
        """How many records each of those who live has read."""
        return [len(member.read()) for member in self.live]

    def check_not_again(self, counts: Sequence[int], committed: dict[int, int]) -> None:
        """Behind the first `counts` of each: nothing that was committed by then is read again."""
        for member, count in zip(self.live, counts, strict=True):
            for read in member.read()[count:]:
                assert read.offset >= committed.get(read.partition, 0), f"{member.name} reads {read} again: {committed}"

    @property
    def _all(self) -> list[Member]:
        return [*self.live, *self.dead]

    def end(self) -> None:
        """Whatever still runs is killed."""
        for member in self._all:
            member.kill()


@contextlib.contextmanager
def reading(bootstrap: str, topic: str, folder: Path) -> Iterator[Group]:
    """A group without members. Its processes end with the block."""
    group = Group(bootstrap, topic, folder)
    try:
        yield group
    finally:
        group.end()


def lose_one(bootstrap: str, topic: str, clients: Sequence[Client], folder: Path, assignor: str | None = None) -> None:
    """A member of each of these clients reads in a group while somebody writes, and one is killed midway."""
    with reading(bootstrap, topic, folder) as group:
        writer = Writer(bootstrap, topic)
        try:
            for client in clients:
                group.add(client, assignor)
            group.wait_stable()
            group.wait_read_on()
            group.kill(len(clients) // 2)
            committed, counts = group.observer.committed(), group.counts()
            assert committed is not None
            group.wait_stable()
            group.wait_read_on()
        finally:
            acked = writer.stop()
        group.wait_done()
        group.check_read(acked)
        group.check_not_again(counts, committed)
        group.wait_stable()
        group.leave()
