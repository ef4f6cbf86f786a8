"""What a transcript is played on: a table of verbs, effects as lines, a picture that is told as far as it changed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple


class Stimulus(NamedTuple):
    """`produce A m1 acks=1` has the verb `produce`, the words A and m1, and an option."""

    verb: str
    words: list[str]
    options: dict[str, str]

    @classmethod
    def parse(cls, text: str) -> Stimulus:
        verb, *rest = text.split()
        options = dict(word.split("=", 1) for word in rest if "=" in word)
        return cls(verb, [word for word in rest if "=" not in word], options)


Verb = Callable[[Any, list[str], dict[str, str]], Awaitable[None]]
"""Takes the stage, words and options."""


class Stage(ABC):
    """What happens is noted with `tell`, as it happens; how things stand is looked at after each stimulus, and told
    where it changed."""

    def __init__(self, verbs: Mapping[str, Verb]) -> None:
        self._verbs = verbs
        self._told: list[str] = []
        self._shown: dict[str, str] = {}

    async def play(self, text: str) -> list[str]:
        """The effects of one stimulus. One that cannot be given is an effect, too: so it stands in the diff."""
        stimulus = Stimulus.parse(text)
        assert stimulus.verb in self._verbs, f"{stimulus.verb!r} is none of {sorted(self._verbs)}"
        try:
            await self._verbs[stimulus.verb](self, stimulus.words, stimulus.options)
        except AssertionError as error:
            self.tell(f"AssertionError: {error}".splitlines()[0])
        return await self.look()

    async def look(self) -> list[str]:
        """What happened since the last look, and what stands otherwise than then."""
        await self.settle()
        told, self._told = list(dict.fromkeys(self._told)), []
        picture = self.picture()
        changed = [f"{what}: {looks}" for what, looks in picture.items() if self._shown.get(what) != looks]
        self._shown |= picture
        return [*told, *changed]

    def tell(self, effect: str) -> None:
        """Note it for the stimulus that is being played. What happens several times meanwhile is told once."""
        self._told.append(effect)

    @abstractmethod
    async def settle(self) -> None:
        """Let what is on its way arrive."""

    @abstractmethod
    def picture(self) -> dict[str, str]:
        """How each thing looks now, in the order in which it is told."""


class Table(Stage):
    """A stage without a picture: each stimulus stands for itself."""

    @classmethod
    @asynccontextmanager
    async def open(
        cls, verbs: Mapping[str, Verb], words: Sequence[str], options: Mapping[str, str]
    ) -> AsyncIterator[Table]:
        yield cls(verbs)

    async def settle(self) -> None:
        """Nothing is on its way."""

    def picture(self) -> dict[str, str]:
        return {}
