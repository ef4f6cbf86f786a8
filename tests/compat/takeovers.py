"""Seeded sequences in which a real Kafka and our broker take each other's folders and ZooKeeper over.

A turn: one of them starts, everything is checked (`takeover_topics.complaint`), it does a few random things, everything
is checked again (not always: a killed broker may be gone before anybody looks), and it stops in order or is killed,
sometimes under load. What our broker must not serve is compared byte for byte over its turn.

Every choice comes from the seed; `transcript` says what was done, in the order in which it was done.
"""

from __future__ import annotations

import contextlib
import random
import re
import threading
from collections.abc import Iterator
from pathlib import Path

from compat.kafka_clients import (
    BROKER_DEFAULTS,
    MOVE_BYTES_PER_SECOND,
    abort_what_is_open,
    commit_group,
    committed_of_group,
    configure,
    delete_records,
    delete_topic,
    futures,
    move,
    read_values,
    transact,
)
from compat.real_kafka import BROKER_ID, Kafka, Ours, Site, Turn, assert_refused, wait_until
from compat.takeover_loads import random_load
from compat.takeover_topics import HARMLESS, Shown, Topic, complaint, is_foreign, random_topic
from strandline.client.sync import Admin
from strandline.protocol.types import TopicPartition

ACTIONS_PER_TURN = 5


class Sequence:
    """One site, some topics, and the two that take turns."""

    def __init__(self, site: Site, seed: int) -> None:
        self.site = site
        self.rng = random.Random(seed)
        self.transcript = [f"seed {seed}"]
        self.topics: list[Topic] = []
        self.names = 0
        self.transactions = 0
        self.was_killed = False
        """Somebody, some time before: a move that it began is recovered when the next Kafka comes."""
        self.old_formats = self.rng.random() < 0.3
        self.dynamic_default = self.rng.random() < 0.5
        self.for_kafka = {"inter_broker_protocol_version": "2.8"} if self.old_formats else {}
        site.properties |= {
            "log.retention.ms": "1000" if self.dynamic_default else "3600000",
            "log.flush.offset.checkpoint.interval.ms": "300",
        }
        self.brokers_config = {MOVE_BYTES_PER_SECOND: "3000"}

    def run(self, turns: int) -> None:
        """So many turns, then a last one of Kafka's, in which nothing stays open."""
        if self.dynamic_default:
            entity = self.rng.choice((BROKER_DEFAULTS, f"brokers/{BROKER_ID}"))
            configure(self.site, entity, {"log.retention.ms": "-1"})
            self._say(f"{entity} keeps records for ever, server.properties for a second")
        if entity_moves := self.rng.random() < 0.7:
            self._configure_moves()
        kafka_begins = self.rng.random() < 0.7
        for number in range(turns):
            turn: Turn = self.site.kafka if (number % 2 == 0) == kafka_begins else self.site.ours
            self._turn(turn)
        self._last_turn(finish_moves=bool(entity_moves))

    def _configure_moves(self) -> None:
        """Slow enough to be interrupted."""
        path = f"brokers/{BROKER_ID}"
        with self.site.znodes() as client:
            if client.exists(f"/config/{path}"):
                return  # it has the retention of this broker
        configure(self.site, path, self.brokers_config)

    # --- one turn ---------------------------------------------------------------------------------------------------

    def _turn(self, turn: Turn) -> None:
        refused = self._refused_files() if isinstance(turn, Ours) else {}
        self._start(turn)
        self._check(turn, "at the start")
        for _ in range(self.rng.randint(2, ACTIONS_PER_TURN)):
            self._act(turn)
        if isinstance(turn, Ours):
            self._try_a_refused_topic(turn)
        end = self.rng.choice(("in order", "in order", "killed", "killed under load"))
        if end != "killed":
            self._check(turn, "at the end")
        self._say(f"{turn.process.name} ends: {end}")
        if end == "in order":
            turn.stop()
        elif end == "killed" or not self._plain_topics(turn):
            turn.kill()
        else:
            self._kill_under_load(turn)
        self._expect_no_complaints(turn)
        self.was_killed |= end != "in order"
        if isinstance(turn, Ours):
            now = self._refused_files()
            changed = [name for name in refused if now.get(name) != refused[name]]
            assert not changed, f"changed in folders that are not served: {changed}"

    def _last_turn(self, finish_moves: bool) -> None:
        kafka = self.site.kafka
        if finish_moves:
            self.brokers_config.clear()
            configure(self.site, f"brokers/{BROKER_ID}", {"log.retention.ms": "-1"} if self.dynamic_default else {})
        self._start(kafka)
        self._check(kafka, "at the last start")
        wait_until(lambda: not self._live_futures(), "Kafka finished its moves")
        for topic in self.topics:
            for producer in topic.open_producers:
                abort_what_is_open(kafka, producer)
            topic.open_producers.clear()
        self._check(kafka, "at the last end")
        kafka.stop()
        self._expect_no_complaints(kafka)

    def _start(self, turn: Turn) -> None:
        self._say(f"{turn.process.name} starts")
        turn.start(**(self.for_kafka if isinstance(turn, Kafka) else {}))

    def _expect_no_complaints(self, turn: Turn) -> None:
        if isinstance(turn, Kafka):
            # Half a batch, or the zeros of a segment that Kafka preallocated; what was acknowledged was compared.
            expected = "Corruption found in segment" if self.was_killed else None
            complaints = [line for line in turn.complaints() if expected is None or expected not in line]
            assert not complaints, complaints[:5]
        else:
            errors = re.findall(
                r"^.*(?:Traceback|internal error|\bcritical\b).*$", turn.log_of_this_life(), re.M | re.I
            )
            assert not errors, errors[:5]

    # --- what is true -----------------------------------------------------------------------------------------------

    def _check(self, turn: Turn, when: str) -> None:
        for topic in self.topics:
            if isinstance(turn, Ours) and topic.is_refused:
                continue
            wrong = self._look(turn, topic)
            assert wrong is None, f"{topic.name} ({topic.kind}) {when} of {turn.process.name}: {wrong}"
            if isinstance(turn, Kafka) and topic.kind == "transactional":
                self._check_transactions(turn, topic)
            for group, offset in topic.groups.items() if isinstance(turn, Kafka) else ():
                assert committed_of_group(turn, group, topic.name) == offset, f"{group} of {topic.name}"

    def _look(self, turn: Turn, topic: Topic) -> str | None:
        for _ in range(20):  # again where retention or compaction is at work meanwhile
            start, batches = turn.bounds(topic.name)[0], turn.raw(topic.name)
            if topic.kind not in ("shortened", "compacted") or turn.bounds(topic.name)[0] == start:
                break
        wrong = complaint(topic, start, batches)
        topic.batches = batches if wrong is None else topic.batches
        return wrong

    def _check_transactions(self, kafka: Kafka, topic: Topic) -> None:
        values = [value for _, value in read_values(kafka, topic.name, "read_committed")]
        expected = topic.committed()
        assert values == expected, f"{topic.name}: read_committed shows {len(values)}, {len(expected)} are committed"
        everything, sent = read_values(kafka, topic.name, "read_uncommitted"), [record.value for record in topic.shown]
        wrong = [offset for (offset, value), other in zip(everything, sent, strict=False) if value != other][:5]
        assert len(everything) == len(sent) and not wrong, f"{topic.name}: {len(everything)} of {len(sent)}, {wrong}"

    def _refused_files(self) -> dict[str, bytes]:
        """Every file of the folders that our broker must not touch: transactions, old formats, moves, strays."""
        names = {f"{topic.name}-0" for topic in self.topics if topic.is_refused}
        folders = [path for directory in self.site.directories if directory.exists() for path in directory.iterdir()]
        touchy = [path for path in folders if path.name in names or path.name.endswith(("-future", "-stray"))]
        return {str(path): path.read_bytes() for folder in touchy for path in sorted(folder.iterdir())}

    def _live_futures(self) -> list[Path]:
        """Moves of topics that there are."""
        names = {f"{topic.name}-0" for topic in self.topics}
        return [path for path in futures(self.site) if path.name.split(".")[0] in names]

    def _try_a_refused_topic(self, ours: Ours) -> None:
        refused = [topic for topic in self.topics if topic.is_refused]
        if not refused:
            return
        topic = self.rng.choice(refused)
        self._say(f"{topic.name} is refused")
        assert_refused(ours, {topic.name: "(has a batch of a transaction|has a message of format)"})

    # --- what is done -----------------------------------------------------------------------------------------------

    def _act(self, turn: Turn) -> None:
        while len(self.topics) < 3:
            self._create(turn)
        actions = [self._create, self._produce, self._produce, self._alter, self._delete_records, self._recreate]
        if isinstance(turn, Kafka):
            actions += [self._transact, self._transact, self._move, self._move, self._commit_group, self._resolve]
        self.rng.choice(actions)(turn)

    def _create(self, turn: Turn) -> None:
        self.names += 1
        self._make(turn, f"t{self.names}")

    def _make(self, turn: Turn, name: str) -> None:
        topic = random_topic(
            name,
            self.rng,
            old_formats=self.old_formats,
            dynamic_default=self.dynamic_default,
            known_only=isinstance(turn, Ours),
        )
        self._say(f"create {topic.name}, {topic.kind}, old records: {topic.old_records}, {topic.config}")
        if isinstance(turn, Kafka):
            turn.create_topic_with(topic.name, topic.config)
        else:
            with Admin(turn.address) as admin:
                admin.create_topic(topic.name, 1, 1, configs=topic.config)
        self.topics.append(topic)
        self._send(turn, topic)

    def _plain_topics(self, turn: Turn) -> list[Topic]:
        """That this one appends to."""
        return [topic for topic in self.topics if not (isinstance(turn, Ours) and topic.is_refused)]

    def _produce(self, turn: Turn) -> None:
        if topics := self._plain_topics(turn):
            self._send(turn, self.rng.choice(topics))

    def _send(self, turn: Turn, topic: Topic) -> None:
        load = random_load(topic, self.rng, self.rng.choice((1, 20, 100, 400)), self.rng.choice((20, 100, 500)))
        self._say(f"produce {len(load.records)} to {topic.name}, {load.codec}")
        load.send(turn)

    def _kill_under_load(self, turn: Turn) -> None:
        """What was acknowledged by then counts; what was not may be there or not."""
        plain = [topic for topic in self._plain_topics(turn) if topic.kind != "transactional"]
        if plain:
            topic = self.rng.choice(plain)
            self._say(f"while {topic.name} is produced to")
            killer = threading.Timer(self.rng.uniform(0.1, 0.6), turn.process.kill)
            killer.start()
            try:
                random_load(topic, self.rng, 3000, 50).send_until_killed(turn)
            finally:
                killer.join()
        turn.kill()

    def _alter(self, turn: Turn) -> None:
        """Another harmless key, known or not, written as a tool of Kafka's would."""
        topic = self.rng.choice(self.topics)
        keys = [key for key in HARMLESS if not (topic.kind == "old format" and is_foreign(key))]
        key = self.rng.choice([key for key in keys if key not in ("segment.bytes", "message.format.version")])
        topic.config[key] = self.rng.choice(HARMLESS[key])
        self._say(f"alter {topic.name}: {key}={topic.config[key]}")
        configure(self.site, f"topics/{topic.name}", topic.config)

    def _delete_records(self, turn: Turn) -> None:
        candidates = [topic for topic in self._plain_topics(turn) if topic.kind in ("kept", "shortened")]
        candidates = [topic for topic in candidates if "compact" not in topic.config.get("cleanup.policy", "")]
        if isinstance(turn, Kafka):  # it waits for logs that are moved
            moving = [path.name.split(".")[0] for path in futures(self.site)]
            candidates = [topic for topic in candidates if f"{topic.name}-0" not in moving]
        if not candidates:
            return
        topic = self.rng.choice(candidates)
        start, end = turn.bounds(topic.name)
        before = self.rng.randint(start, end)
        self._say(f"delete records of {topic.name} below {before} of {start}..{end}")
        if isinstance(turn, Kafka):
            delete_records(turn, topic.name, before)
        else:
            with Admin(turn.address) as admin:
                admin.delete_records({TopicPartition(topic.name, 0): before})
        topic.floor = max(topic.floor, before)

    def _recreate(self, turn: Turn) -> None:
        """Deleted, and half of the time created anew at once."""
        topics = self._plain_topics(turn)
        if not topics:
            return
        topic = self.rng.choice(topics)
        self._say(f"delete {topic.name}")
        if isinstance(turn, Kafka):
            delete_topic(turn, topic.name)
        else:
            with Admin(turn.address) as admin:
                admin.delete_topic(topic.name)
        self.topics.remove(topic)
        if self.rng.random() < 0.5:
            self._make(turn, topic.name)

    def _transact(self, kafka: Turn) -> None:
        topics = [topic for topic in self.topics if topic.kind == "transactional"]
        if not topics or not isinstance(kafka, Kafka):
            return
        topic = self.rng.choice(topics)
        self.transactions += 1
        end = self.rng.choice(("commit", "abort", "open"))
        batches = [[b"%d %d %d" % (self.transactions, number, place) * 20 for place in range(5)] for number in range(3)]
        producer = f"producer-{self.transactions}"
        self._say(f"transaction of {producer} to {topic.name}: {end}")
        topic.transactions += 1
        transact(kafka, producer, topic.name, batches, end)
        topic.shown += [Shown(value, end, producer) for batch in batches for value in batch]
        if end == "open":
            topic.open_producers.append(producer)

    def _resolve(self, kafka: Turn) -> None:
        """The producer of an open transaction comes back, which aborts it."""
        topics = [topic for topic in self.topics if topic.open_producers]
        if topics and isinstance(kafka, Kafka):
            producer = self.rng.choice(topics).open_producers.pop(0)
            self._say(f"{producer} comes back")
            abort_what_is_open(kafka, producer)

    def _move(self, kafka: Turn) -> None:
        """Begins and is not waited for: it may be done before the turn ends, or be interrupted."""
        topic = self.rng.choice(self.topics)
        folder = f"{topic.name}-0"
        sources = [directory for directory in self.site.directories if (directory / folder).exists()]
        if isinstance(kafka, Kafka) and len(sources) == 1 and len(self.site.directories) > 1:
            (target,) = [directory for directory in self.site.directories if directory not in sources]
            self._say(f"move {topic.name} to {target.name}")
            move(kafka, topic.name, target)

    def _commit_group(self, kafka: Turn) -> None:
        topic = self.rng.choice(self.topics)
        if isinstance(kafka, Kafka):
            group, offset = f"group-{self.rng.randint(1, 3)}", self.rng.randint(0, 1000)
            self._say(f"{group} commits {offset} of {topic.name}")
            commit_group(kafka, group, topic.name, offset)
            topic.groups[group] = offset

    def _say(self, what: str) -> None:
        self.transcript.append(what)


@contextlib.contextmanager
def told(sequence: Sequence) -> Iterator[None]:
    """A failure says what was done before."""
    try:
        yield
    except BaseException as error:
        error.add_note("\n".join(sequence.transcript))
        raise
