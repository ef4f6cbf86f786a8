"""A consumer's fetch against what the leader does meanwhile, in every order.

A leads, and has m0 and m1, which are committed, and u0, which nobody else has.

| step | what it is |
|---|---|
| look | the fetch is answered: high watermark and regions of files are set down |
| half, rest | the bytes of these regions leave, in two pieces |
| append, commit | n0 is appended at A; the followers fetch everything |
| resign, cut, follow | B leads; A, which follows it, drops u0; A appends what B has written there |

| stimulus | what happens |
|---|---|
| interleave look half rest / append commit | every order of the two rows, each from the beginning |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from strandline.broker.network.regions import StaleRegion, read_whole
from strandline.protocol.errors import ErrorCode
from strandline.protocol.records import decode_records
from strandline.runtime.disk import FileRegion
from support.replicas import Call, ScriptedReplicas
from support.transcripts.replica_look import values_text
from support.transcripts.stage import Table, Verb


class Reading:
    """One order of the steps."""

    def __init__(self, replicas: ScriptedReplicas) -> None:
        self.replicas = replicas
        self._call: Call | None = None
        self._received = b""
        self._ended = ""

    @classmethod
    async def begin(cls) -> Reading:
        replicas = await ScriptedReplicas.start("AB")
        await replicas.lead("A", epoch=0)
        replicas.produce("A", b"m0", b"m1")
        replicas.catch_up("B")
        replicas.produce("A", b"u0", acks=1)
        return cls(replicas)

    async def step(self, name: str) -> None:
        if name == "resign":
            await self.replicas.lead("B", epoch=1)
        else:
            getattr(self, f"_{name}")()

    def outcome(self) -> str:
        return self._ended or values_text(record.value for record in decode_records(memoryview(self._received)))

    # --- the reader ----------------------------------------------------------------------------------------------

    def _look(self) -> None:
        self._call = self.replicas.read("A")
        code = self._call.fetched.error_code
        self._ended = ErrorCode(code).name if code else ""

    def _half(self) -> None:
        self._leave(0, 2)

    def _rest(self) -> None:
        self._leave(1, 2)

    def _leave(self, piece: int, pieces: int) -> None:
        assert self._call is not None
        for region in [] if self._ended else self._call.regions:
            start, end = (region.length * at // pieces for at in (piece, piece + 1))
            part = FileRegion(region.file, region.position + start, end - start)
            part.truncations = region.truncations
            try:
                self._received += read_whole(part)
            except StaleRegion:
                self._ended = "the connection ends"

    # --- what the leader does ------------------------------------------------------------------------------------

    def _append(self) -> None:
        self.replicas.produce("A", b"n0", acks=1)

    def _commit(self) -> None:
        self.replicas.catch_up("B")

    def _cut(self) -> None:
        self.replicas.fetch("A")

    def _follow(self) -> None:
        self.replicas.produce("B", b"other", acks=1)
        self.replicas.fetch("A")


def orders(one: Sequence[str], other: Sequence[str]) -> Iterator[list[str]]:
    """Every order of the two rows in which each keeps its own."""
    if not one or not other:
        yield [*one, *other]
        return
    for rest in orders(one[1:], other):
        yield [one[0], *rest]
    for rest in orders(one, other[1:]):
        yield [other[0], *rest]


async def interleave(stage: Table, words: list[str], options: dict[str, str]) -> None:
    border = words.index("/")
    for order in orders(words[:border], words[border + 1 :]):
        reading = await Reading.begin()
        for name in order:
            await reading.step(name)
        stage.tell(f"{' '.join(order)}: {reading.outcome()}")


VERBS: dict[str, Verb] = {"interleave": interleave}
