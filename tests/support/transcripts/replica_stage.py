"""Replicas of one partition, step by step: the transcript is the network, ZooKeeper and the controller.

| stimulus | what happens |
|---|---|
| lead A e1 isr=AB tell=AB | the controller says to these (by default to all) that A leads; ISR: by default all |
| produce A m1 m2 | each value in a batch of its own; `acks=1`: for the leader alone |
| fetch B C | one round trip with whom each of them follows |
| ask B late | B's next fetch, as its log is now, which stays on its way under that name |
| answer A late | what A says to it now; `take late`: B hears it |
| catch-up B C | they fetch until nothing moves any more |
| look A | A's periodic look for followers that lag |
| accept A | ZooKeeper takes the ISR that A wants, and A hears of it |
| rest 10 | so many seconds pass |
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import trio

from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import ProduceRequest
from support.replicas import Answer, Call, Question, ScriptedReplicas
from support.transcripts.replica_look import Names, replica_text
from support.transcripts.stage import Stage, Verb
from support.transcripts.text import gather, spread

ACKS_ALL = -1
Words = list[str]
Options = dict[str, str]


class ReplicaStage(Stage):
    """See the module."""

    def __init__(self, verbs: Mapping[str, Verb], letters: str, replicas: ScriptedReplicas) -> None:
        super().__init__(verbs)
        self.names = Names(letters)
        self.replicas = replicas
        self.questions: dict[str, tuple[Question, Answer | None]] = {}
        self._unanswered: dict[str, Call] = {}

    @classmethod
    @asynccontextmanager
    async def open(
        cls, verbs: Mapping[str, Verb], words: Sequence[str], options: Mapping[str, str]
    ) -> AsyncIterator[ReplicaStage]:
        """words: the replicas. options: their brokers' properties."""
        settings = {key.replace(".", "_"): value for key, value in options.items()}
        yield cls(verbs, "".join(words), await ScriptedReplicas.start("".join(words), **settings))

    def produce(self, leader: str, values: Sequence[str], acks: int) -> None:
        for value in values:
            self._unanswered[value] = self.replicas.produce(leader, value.encode(), acks=acks)

    def tell_answer(self, follower: str, question: Question, answer: Answer) -> None:
        """Where it is more than records."""
        wanted, partition = question.request.topics[0].partitions[0], answer.partition
        asks = f"{follower} fetches from {wanted.fetch_offset} in e{wanted.current_leader_epoch}"
        if partition.error_code:
            self.tell(f"{asks}: {ErrorCode(partition.error_code).name}")
        elif partition.diverging_epoch is not None:
            diverging = partition.diverging_epoch
            self.tell(f"{asks}: the logs part, e{diverging.epoch} ends at {diverging.end_offset}")

    async def settle(self) -> None:
        await trio.lowlevel.checkpoint()
        outcomes: dict[str, list[str]] = {}
        for value, call in list(self._unanswered.items()):
            if call.error_code is not None:
                outcome = _outcome(call)
                outcomes.setdefault(outcome, []).append(value)
                del self._unanswered[value]
        for outcome, values in outcomes.items():
            self.tell(f"{' '.join(gather(values))}: {outcome}")

    def picture(self) -> dict[str, str]:
        hosted = [letter for letter in self.names.id_of if self.replicas.hosts(letter)]
        return {letter: replica_text(self.replicas.partition(letter), self.names) for letter in hosted}


def _outcome(call: Call) -> str:
    if call.error_code:
        return ErrorCode(call.error_code).name
    assert isinstance(call.message, ProduceRequest)
    return "acknowledged" if call.message.acks == ACKS_ALL else "written"


async def lead(stage: ReplicaStage, words: Words, options: Options) -> None:
    leader, epoch = words
    await stage.replicas.lead(leader, epoch=int(epoch[1:]), isr=options.get("isr"), tell=options.get("tell"))


async def produce(stage: ReplicaStage, words: Words, options: Options) -> None:
    leader, *values = words
    stage.produce(leader, spread(values), int(options.get("acks", ACKS_ALL)))


async def fetch(stage: ReplicaStage, words: Words, options: Options) -> None:
    for follower in words:
        question = stage.replicas.ask(follower)
        leader = stage.names.of_id[stage.replicas.partition(follower).leader_id]
        answer = stage.replicas.answer(leader, question)
        stage.tell_answer(follower, question, answer)
        stage.replicas.take(question, answer)


async def ask(stage: ReplicaStage, words: Words, options: Options) -> None:
    follower, name = words
    stage.questions[name] = (stage.replicas.ask(follower), None)


async def answer(stage: ReplicaStage, words: Words, options: Options) -> None:
    leader, name = words
    question, _ = stage.questions[name]
    stage.questions[name] = (question, stage.replicas.answer(leader, question))
    stage.tell_answer(question.follower, *stage.questions[name])


async def take(stage: ReplicaStage, words: Words, options: Options) -> None:
    question, heard = stage.questions.pop(words[0])
    assert heard is not None, "nobody has answered yet"
    stage.replicas.take(question, heard)


async def catch_up(stage: ReplicaStage, words: Words, options: Options) -> None:
    stage.replicas.catch_up("".join(words))


async def look(stage: ReplicaStage, words: Words, options: Options) -> None:
    stage.replicas.check_isrs(words[0])


async def accept(stage: ReplicaStage, words: Words, options: Options) -> None:
    stage.replicas.accept(words[0])
    stage.tell(f"{words[0]} has ISR {' '.join(stage.replicas.isr(words[0]))}")


async def rest(stage: ReplicaStage, words: Words, options: Options) -> None:
    await trio.sleep(float(words[0]))


VERBS: dict[str, Verb] = {
    verb.__name__.replace("_", "-"): verb
    for verb in (lead, produce, fetch, ask, answer, take, catch_up, look, accept, rest)
}
