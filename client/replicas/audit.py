"""Every replica of every partition compared with its leader's, below the high watermark, by checksum.

    with Admin(bootstrap_servers="localhost:9092") as admin:
        summary = audited(admin, AuditOptions(), run_here(admin.read_replica))
    assert summary.is_equal, [each for each in summary.partitions if each.state != "equal"]

The other modules here say what counts as a difference and what is not proven (compacted partitions). Where the pieces
are compared is the caller's choice: in this process (`run_here`), or in the tasks of a Spark job. The brokers' logs are
read as they are: nothing is changed, nobody is locked out, and what is written, deleted or moved meanwhile is no
difference. Whatever one look finds a second one, made from a new plan, must find, too; what is found anew by every look
is told in the end as not confirmed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from strandline.client.errors import ClientError, UnknownTopic
from strandline.client.metadata import PartitionView, TopicView
from strandline.client.replicas.comparison import DAMAGED, DIFFERENCES, OFFLINE, UNREAD, Compared, Finding
from strandline.client.replicas.looking import WHOLE, Asked, Begin, Known, Read, Reader, Work, look, plan, unconfirmed
from strandline.client.replicas.reading import Replica
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import DescribeConfigsResourceResult
from strandline.protocol.types import TopicPartition

MAX_LOOKS = 5
"""So often at what keeps changing; a difference that stays is found twice."""

CLEANUP_POLICY = "cleanup.policy"

EQUAL, BEHIND, DIFFERS = "equal", "behind", "different"
STATES = (EQUAL, BEHIND, OFFLINE, UNREAD, DIFFERS)
"""Of a replica, the worst last. A replica that is behind is equal as far as it has come."""


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """Which partitions: those of `topics` (name → their numbers, None: all of them), else of the topics whose whole
    name `pattern` matches, None: of all. `bootstrap_servers`, `client_settings`: of the admin clients that tasks make
    where the pieces are compared elsewhere."""

    bootstrap_servers: str = ""
    topics: Mapping[str, tuple[int, ...] | None] = field(default_factory=dict)
    pattern: str | None = None
    include_internal: bool = False
    """The brokers' own topics, too, where topics are not named one by one."""
    allow_offline: bool = False
    """Replicas of brokers that are not running are told, but do not count."""
    client_settings: Mapping[str, Any] = field(default_factory=dict)
    begin: Begin = WHOLE
    """From where on."""


@dataclass(frozen=True, slots=True)
class AuditedReplica:
    """`start` to `end` was compared. `lag`: offsets that are committed at the leader, and here not known to be."""

    broker_id: int
    is_leader: bool
    in_sync: bool
    state: str
    start: int
    end: int
    lag: int
    batches: int
    records: int
    size_bytes: int
    findings: tuple[Finding, ...]

    @property
    def is_read(self) -> bool:
        """Nothing stood in the way of reading it: its lag is known."""
        return not any(each.start == each.end for each in self.findings)


@dataclass(frozen=True, slots=True)
class AuditedPartition:
    """`state`: the worst of its replicas'."""

    topic: str
    partition: int
    leader: int
    is_compacted: bool
    state: str
    replicas: tuple[AuditedReplica, ...]


@dataclass(frozen=True, slots=True)
class AuditSummary:
    """`is_equal`: nothing differs, and everything could be read (but for what was allowed to be offline)."""

    is_equal: bool
    topics: int
    replicas: int
    replicas_by_state: Mapping[str, int]
    batches: int
    records: int
    size_bytes: int
    looks: int
    internal_left_out: tuple[str, ...]
    """Topics of the brokers' own that were not asked for."""
    partitions: tuple[AuditedPartition, ...]


Results = Iterable[tuple[Work, Mapping[int, Compared]]]


class Cluster(Asked, Protocol):
    """What an audit needs of `Admin`."""

    def describe_topics(self) -> dict[str, TopicView]: ...

    def describe_topic_configs(
        self, names: Iterable[str], keys: Sequence[str]
    ) -> dict[str, list[DescribeConfigsResourceResult] | ClientError]: ...


def audited(
    admin: Cluster,
    options: AuditOptions,
    run: Callable[[list[Work]], Results],
    *,
    on_step: Callable[[str], None] = lambda step: None,
    warn: Callable[[str], None] = lambda text: None,
) -> AuditSummary:
    """Compare; `run` looks at the pieces, `on_step` is told what is done now. UnknownTopic, the client's errors."""
    return looked_at(admin, options, run, on_step=on_step, warn=warn).summary()


def looked_at(
    admin: Cluster,
    options: AuditOptions,
    run: Callable[[list[Work]], Results],
    *,
    on_step: Callable[[str], None] = lambda step: None,
    warn: Callable[[str], None] = lambda text: None,
) -> Audit:
    """As `audited`, with what else is known than the summary."""
    on_step("looking at the cluster")
    topics, left_out = chosen_topics(admin, options)
    state = Audit(admin, topics, left_out, options, warn)
    while works := state.next_look():
        replicas = len({(work.partition, broker) for work in works for broker in work.brokers})
        on_step(f"comparing {replicas:,} replicas" if state.looks == 1 else "looking again")
        state.take(run(works))
    return state


def run_here(
    read: Read, on_piece: Callable[[Work, int, int], None] = lambda work, number, of: None
) -> Callable[[list[Work]], Results]:
    """In this process, one piece after the other. read: `Admin.read_replica`. on_piece: is told of each piece before it
    is compared, which it is and of how many."""

    def run(works: list[Work]) -> Results:
        reader = Reader(read)
        for number, work in enumerate(works):
            on_piece(work, number, len(works))
            yield work, look(reader, work)

    return run


# --- Which topics ----------------------------------------------------------------------------------------------


def chosen_topics(admin: Cluster, options: AuditOptions) -> tuple[dict[str, TopicView], tuple[str, ...]]:
    """Those that the options name, and the internal ones that they would name, too. UnknownTopic."""
    known = admin.describe_topics()
    for name, numbers in options.topics.items():
        if name not in known:
            raise _unknown(f"Topic {name!r} does not exist; check the spelling ('strandline topics --list')")
        for number in numbers or ():
            if number not in known[name].partitions:
                there = f"it has 0 to {len(known[name].partitions) - 1}"
                raise _unknown(f"Topic {name!r} has no partition {number}; {there}")
    if options.topics:
        return {name: known[name] for name in options.topics}, ()
    meant = {
        name: topic for name, topic in known.items() if options.pattern is None or re.fullmatch(options.pattern, name)
    }
    left_out = [name for name, topic in meant.items() if topic.is_internal and not options.include_internal]
    chosen = {name: topic for name, topic in meant.items() if name not in left_out}
    if not chosen and options.pattern is not None:
        advice = (
            f"{left_out[0]!r} is internal, and such topics have to be asked for ('--internal')"
            if left_out
            else "'strandline topics --list' shows them"
        )
        raise _unknown(f"No topic's name matches {options.pattern!r}; {advice}")
    return chosen, tuple(sorted(left_out))


def _unknown(text: str) -> UnknownTopic:
    return UnknownTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)


# --- Looking, until what is found is sure ----------------------------------------------------------------------

Piece = tuple[TopicPartition, int]


class Audit:
    """What is known so far, piece by piece; what is not sure is looked at again."""

    def __init__(
        self,
        admin: Cluster,
        topics: Mapping[str, TopicView],
        internal_left_out: tuple[str, ...],
        options: AuditOptions,
        warn: Callable[[str], None],
    ) -> None:
        self.looks = 0
        self._admin = admin
        self._topics = dict(topics)
        self._internal_left_out = internal_left_out
        self._options = options
        self.begin = options.begin.without(options.begin.made_anew(topics))
        self._warn = warn
        self._compacted: set[str] = set()
        self._known: Known = {}
        self._pieces: dict[Piece, tuple[Work, dict[int, Compared]]] = {}
        self._before: dict[Replica, list[Finding]] = {}
        for name, configured in admin.describe_topic_configs(topics, [CLEANUP_POLICY]).items():
            if isinstance(configured, UnknownTopic):
                self._leave_out(name)
            elif isinstance(configured, Exception):
                raise configured
            elif any("compact" in (each.value or "") for each in configured):
                self._compacted.add(name)

    def next_look(self) -> list[Work]:
        """What has to be compared now; nothing once all is sure."""
        found = self._found()
        is_sure = not any(self._doubtful(replica, found[replica]) for replica in found)
        if self.looks and (is_sure or self.looks == MAX_LOOKS):
            return []
        self._before = found
        if not self.looks:
            works, self._known = plan(self._admin, self._topics.values(), self._compacted, self._is_meant, self.begin)
        else:
            works = self._plan_again({replica.partition for replica in found})
        self.looks += 1
        # Where there is nothing to read, what is known has to be found again all the same.
        return works or self.next_look()

    def take(self, results: Results) -> None:
        for work, compared in results:
            self._pieces[work.piece] = work, dict(compared)

    def _plan(
        self, topics: Iterable[TopicView], is_meant: Callable[[TopicPartition], bool]
    ) -> tuple[list[Work], Known]:
        return plan(self._admin, topics, self._compacted, is_meant, self.begin)

    def _is_meant(self, partition: TopicPartition) -> bool:
        numbers = self._options.topics.get(partition.topic)
        return numbers is None or partition.partition in numbers

    def _plan_again(self, partitions: set[TopicPartition]) -> list[Work]:
        """The pieces of these partitions in which something was found, or not all replicas were read; and all of the
        partitions that came meanwhile."""
        self._update_topics()
        partitions = partitions | self._never_planned()
        topics = [self._topics[name] for name in sorted({each.topic for each in partitions} & set(self._topics))]
        works, known = self._plan(topics, partitions.__contains__)
        unread = {replica.partition for replica in self._known if self._known[replica].kind in (OFFLINE, UNREAD)}
        open_pieces = {
            piece
            for piece, (_, compared) in self._pieces.items()
            if piece[0] in partitions and (piece[0] in unread or any(each.findings for each in compared.values()))
        }
        planned = {work.piece for work in works}
        for piece in sorted(
            open_pieces - planned
        ):  # deleted meanwhile, or without a leader now, which is told of all of it
            del self._pieces[piece]
        self._known = {replica: each for replica, each in self._known.items() if replica.partition not in partitions}
        self._known |= known
        return [work for work in works if work.piece in open_pieces or work.piece not in self._pieces]

    def _update_topics(self) -> None:
        """Leaders and replicas as they are now; without topics that were deleted meanwhile, or made anew."""
        now = self._admin.describe_topics()
        for name, before in list(self._topics.items()):
            if name in now and now[name].topic_id == before.topic_id:
                self._topics[name] = now[name]
                continue
            self._leave_out(name)

    def _leave_out(self, deleted: str) -> None:
        self._warn(f"topic {deleted!r} was deleted while it was audited")
        del self._topics[deleted]
        self._pieces = {piece: each for piece, each in self._pieces.items() if piece[0].topic != deleted}
        self._known = {replica: each for replica, each in self._known.items() if replica.partition.topic != deleted}

    def _never_planned(self) -> set[TopicPartition]:
        planned = {partition for partition, _ in self._pieces} | {replica.partition for replica in self._known}
        return set(self._views()) - planned

    def _views(self) -> dict[TopicPartition, PartitionView]:
        """Of the partitions that are meant, in order."""
        return {
            partition: view
            for name, topic in sorted(self._topics.items())
            for number, view in sorted(topic.partitions.items())
            if self._is_meant(partition := TopicPartition(name, number))
        }

    def _found(self) -> dict[Replica, list[Finding]]:
        found = {replica: [finding] for replica, finding in self._known.items()}
        for (partition, _), (_, compared) in self._pieces.items():
            for broker, result in compared.items():
                if result.findings:
                    found.setdefault(Replica(partition, broker), []).extend(result.findings)
        return found

    def _doubtful(self, replica: Replica, found: Iterable[Finding]) -> set[Finding]:
        """What the look before did not find."""
        return set(unconfirmed(found, self._before.get(replica, ())))

    # --- What came of it ---

    def topic_ids(self) -> dict[str, bytes]:
        """Name → id, of the topics that were there all the time."""
        return {name: topic.topic_id for name, topic in self._topics.items()}

    def reached(self) -> dict[Replica, int]:
        """Up to where each replica was compared. One that could not be read begins where the others did, if not before,
        and what lies behind bytes that are no batches is nothing to come back to."""
        reached: dict[Replica, int] = {}
        pieces = self._pieces_in_order()
        for partition, view in self._views().items():
            compared = {
                broker: [piece[broker] for piece in pieces.get(partition, ()) if broker in piece]
                for broker in view.replicas
            }
            if not compared.get(view.leader):
                continue
            begun, committed = _bounds(compared[view.leader])
            for broker, results in compared.items():
                replica, (_, end) = Replica(partition, broker), _bounds(results)
                if not results:
                    reached[replica] = min(begun, self.begin.reached.get(replica, begun))
                else:
                    findings = [finding for each in results for finding in each.findings]
                    ends_in_damage = any(each.kind == DAMAGED and each.end > end for each in findings)
                    reached[replica] = committed if ends_in_damage else end
        return reached

    def _pieces_in_order(self) -> dict[TopicPartition, list[Mapping[int, Compared]]]:
        pieces: dict[TopicPartition, list[Mapping[int, Compared]]] = {}
        for (partition, _), (_, compared) in sorted(self._pieces.items()):
            pieces.setdefault(partition, []).append(compared)
        return pieces

    def summary(self) -> AuditSummary:
        pieces = self._pieces_in_order()
        found = self._found()
        partitions = [
            self._partition(partition, view, pieces.get(partition, []), found)
            for partition, view in self._views().items()
        ]
        replicas = [replica for partition in partitions for replica in partition.replicas]
        by_state = {state: sum(replica.state == state for replica in replicas) for state in STATES}
        wrong = by_state[DIFFERS] + by_state[UNREAD]
        return AuditSummary(
            is_equal=not wrong and (self._options.allow_offline or not by_state[OFFLINE]),
            topics=len(self._topics),
            replicas=len(replicas),
            replicas_by_state=by_state,
            batches=sum(each.batches for each in replicas),
            records=sum(each.records for each in replicas),
            size_bytes=sum(each.size_bytes for each in replicas),
            looks=self.looks,
            internal_left_out=self._internal_left_out,
            partitions=tuple(partitions),
        )

    def _partition(
        self,
        partition: TopicPartition,
        view: PartitionView,
        pieces: list[Mapping[int, Compared]],
        found: Mapping[Replica, list[Finding]],
    ) -> AuditedPartition:
        bounds = {broker: _bounds([piece[broker] for piece in pieces if broker in piece]) for broker in view.replicas}
        committed = bounds[view.leader][1] if view.leader in bounds else 0
        replicas = []
        for broker in view.replicas:
            compared = [piece[broker] for piece in pieces if broker in piece]
            of_replica = found.get(replica := Replica(partition, broker), [])
            doubtful = self._doubtful(replica, of_replica)
            findings = joined(replace(each, is_confirmed=each not in doubtful) for each in of_replica)
            start, end = bounds[broker]
            lag = max(0, committed - end) if any(each.is_behind for each in compared) else 0
            replicas.append(
                AuditedReplica(
                    broker_id=broker,
                    is_leader=broker == view.leader,
                    in_sync=broker in view.in_sync_replicas,
                    state=_state(findings, lag),
                    start=start,
                    end=end,
                    lag=lag,
                    batches=sum(each.batches for each in compared),
                    records=sum(each.records for each in compared),
                    size_bytes=sum(each.size_bytes for each in compared),
                    findings=findings,
                )
            )
        worst = max((replica.state for replica in replicas), key=STATES.index, default=EQUAL)
        is_compacted = partition.topic in self._compacted
        return AuditedPartition(*partition, view.leader, is_compacted, worst, tuple(replicas))


def joined(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """In order, where the pieces of a partition do not show any more: what both of two neighbours saw is there once."""
    result: list[Finding] = []
    for finding in sorted(findings, key=lambda each: (each.start, each.end)):
        told = finding.kind, finding.is_confirmed
        last = next((each for each in reversed(result) if (each.kind, each.is_confirmed) == told), None)
        if last is None or finding.start > last.end or (finding.start == last.end and finding.text != last.text):
            result.append(finding)
        elif finding.end > last.end:
            both = replace(last, end=finding.end, count=last.count + finding.count)
            result[result.index(last)] = both
    return tuple(result)


def why(finding: Finding) -> str:
    """Its text, and whether that is sure."""
    return finding.text + ("" if finding.is_confirmed else " (not confirmed: the look before did not find it)")


def _bounds(compared: list[Compared]) -> tuple[int, int]:
    """From where to where all was compared; pieces in order."""
    if not compared:
        return 0, 0
    filled = [each for each in compared if each.end > each.start] or compared[:1]
    start, end = filled[0].start, filled[0].end
    for each in filled[1:]:
        if each.start > end:
            break
        end = each.end
    return start, end


def _state(findings: tuple[Finding, ...], lag: int) -> str:
    kinds = {finding.kind for finding in findings}
    if kinds & set(DIFFERENCES):
        return DIFFERS
    for state in (UNREAD, OFFLINE):
        if state in kinds:
            return state
    return BEHIND if lag else EQUAL
