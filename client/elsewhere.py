"""Names that fingers type from memory of kafka-python, confluent-kafka and aiokafka: what has their part here.

The error of an attribute that is not there says it. Nothing is answered by those names: `hasattr` stays False. Each is
an attribute of the class that raises when it is looked up: a `__getattr__` would make every `send` a tenth slower.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, TypeVar

C = TypeVar("C", bound=type)


def answers_names_of_others(*tables: dict[str, str]) -> Callable[[C], C]:
    """A decorator for a class of clients, or of what they return: of each name that it lacks, what has its part."""

    def with_answers(cls: C) -> C:
        for name, text in ((name, text) for table in tables for name, text in table.items()):
            if not hasattr(cls, name):
                setattr(cls, name, _Answer(name, text))
        return cls

    return with_answers


class _Answer:
    """What is said of one name, by `help` as well."""

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._text = text
        self.__doc__ = f"Not here: {text}."

    def __get__(self, found_in: object, owner: type) -> NoReturn:
        text = f"{owner.__name__!r} object has no attribute {self._name!r}: {self._text}"
        raise AttributeError(text, name=self._name, obj=found_in)


OF_PRODUCERS: dict[str, str] = {
    "produce": "send(topic, value, key=…) is what sends; its outcome is in the future that it returns",
    "poll": "a producer sends and settles its futures by itself, nobody has to call poll",
    "send_and_wait": "send returns the outcome: of a Producer send(…).result(), in loops await (await send(…))",
    "send_messages": "send_many takes many records",
    "produce_batch": "send_many takes many records",
    "init_transactions": "brokers serve no transactions",
    "begin_transaction": "brokers serve no transactions",
    "transaction": "brokers serve no transactions",
}
OF_CONSUMERS: dict[str, str] = {
    "consume": "poll(timeout_ms) and `for record in consumer` read",
    "getone": "`async for record in consumer` reads one by one",
    "getmany": "poll(timeout_ms) reads many",
    "commit_async": "commit_nowait(offsets, on_done) commits without waiting",
    "store_offsets": "a record counts as read once poll or the loop has handed it out; commit(offsets) takes others",
    "highwater": "high_watermark(partition) tells it, end_offsets([…]) asks for it",
    "get_watermark_offsets": "beginning_offsets([…]) and end_offsets([…]) ask for them",
    "topics": "list_topics of an Admin lists topics",
    "list_topics": "list_topics of an Admin lists topics",
}
OF_CLIENTS: dict[str, str] = {
    "start": "a `with` or `async with` block begins and ends it",
    "stop": "close ends it, as the end of its block does",
    "bootstrap_connected": "waiting() tells what is held up, and why",
}
OF_ADMINS: dict[str, str] = {
    "describe_consumer_groups": "describe_groups describes them",
    "list_consumer_groups": "list_groups lists them",
    "list_consumer_group_offsets": "list_group_offsets lists them",
    "alter_consumer_group_offsets": "alter_group_offsets sets them",
    "delete_consumer_groups": "delete_groups deletes them",
    "incremental_alter_configs": "alter_configs changes some keys and leaves the others",
}
OF_FUTURES: dict[str, str] = {
    "get": "it is a concurrent.futures.Future: result(timeout) waits for the outcome",
    "add_callback": "it is a concurrent.futures.Future: add_done_callback(function) calls when settled",
    "add_errback": "it is a concurrent.futures.Future: add_done_callback(function) calls when settled",
    "succeeded": "it is a concurrent.futures.Future: exception() is None where it was delivered",
    "failed": "it is a concurrent.futures.Future: exception() is None where it was delivered",
    "is_done": "it is a concurrent.futures.Future: done() tells",
}
