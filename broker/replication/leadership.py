"""What a leader knows and decides about one partition: who is in sync, what is committed. Pure: no IO, no clock.

Leading a partition is a value (`Leadership`), made when LeaderAndIsr names this broker, dropped when it names another.
Its rules:

* HW = min LEO over the *maximal* ISR (committed ∪ proposed), and over outsiders that have caught up and are about to
  join, or a busy partition would outrun them for ever (invariant 3). It never goes back (invariant 8) and does not move
  while the committed ISR is smaller than min(min.insync.replicas, replication factor) (invariant 15, KIP-966).
* Who leaves the ISR while what remains is smaller than that is *eligible* to lead: it has everything committed, since
  HW stands still from then on (invariant 22). HW moves again only once ZooKeeper has nobody on that list any more: an
  ISR that grows back empties it in the same write, one that is large enough by a smaller minimum in a write of its own.
* A leader without ZooKeeper changes no ISR, so it commits nothing that its followers lack (invariant 16).
* One ISR change is in flight at a time (invariant 3). A proposal counts for the quorum from the moment it is made; a
  shrink counts only once ZooKeeper has it.
* A follower may join once it fetched *in this leader epoch* (invariant 10) from an offset at or above the HW, the start
  of this epoch (KAFKA-7128) and the *quorum offset*, while its broker lives, and once its log begins on its disk where
  the leader's does: it may lead, and nobody waited for it when records were deleted. The quorum offset is where HW
  would be if the minimum did not hold it: below the minimum HW proves nothing, and who joined by it could be far
  behind, lead after an orderly stop, and have the only whole log cut. A leader that is alone in sync is its own quorum,
  so a newcomer has to reach its log's end once. From then on it belongs to the quorum, which stands still until it
  arrives there: a busy leader is reached at the newcomer's next fetch, however much was appended meanwhile.
* A follower leaves when it has not been caught up for replica.lag.time.max.ms; one whose last fetch reached the LEO is
  never removed while nothing is written (invariant 11). A member that is no replica (an operator or a Kafka wrote it)
  has nothing and follows nobody: it counts for nothing, and leaves with the next change.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

UNKNOWN_OFFSET = -1
NEVER = float("-inf")


@dataclass(slots=True, eq=False)
class FollowerProgress:
    """What the leader has seen of one follower within its own epoch.

    log_end_offset: where its last fetch of this epoch began, so everything below is in its log; −1 before the first.
    caught_up_at: the last moment (monotonic seconds) at which it had everything the leader had.
    incarnation: which start of that broker fetches, from the fetch; −1 before the first.
    log_start_offset: where its log begins on its disk, from the fetch; −1 before the first.
    stalled_fetches: how often in a row it asked for one offset although there was data at the time before.
    is_held_back: a throttle let nothing of this data through since its last fetch.
    """

    broker_id: int
    log_end_offset: int = UNKNOWN_OFFSET
    caught_up_at: float = NEVER
    incarnation: int = -1
    last_fetch_at: float = NEVER
    leader_leo_at_last_fetch: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    stalled_fetches: int = 0
    is_held_back: bool = False

    def record_fetch(self, fetch_offset: int, leader_leo: int, incarnation: int, now: float) -> None:
        """A fetch from `fetch_offset` acknowledges everything below it.

        Caught up *now* if it reached the LEO; caught up *at its previous fetch* if it has reached what the LEO was then
        (a follower that is always one batch behind on a busy partition is in sync).
        """
        if fetch_offset >= leader_leo:
            self.caught_up_at = now
        elif fetch_offset >= self.leader_leo_at_last_fetch and self.last_fetch_at > self.caught_up_at:
            self.caught_up_at = self.last_fetch_at
        if fetch_offset != self.log_end_offset:
            self.stalled_fetches = 0
        elif fetch_offset < self.leader_leo_at_last_fetch:
            self.stalled_fetches += not self.is_held_back
            self.is_held_back = False
        self.log_end_offset = fetch_offset
        self.leader_leo_at_last_fetch = leader_leo
        self.last_fetch_at = now
        self.incarnation = incarnation

    def waited_until(self, now: float) -> None:
        """Its last fetch was parked until now: if there was nothing to send, it had everything all that time. One of an
        earlier epoch says nothing here."""
        if UNKNOWN_OFFSET < self.log_end_offset == self.leader_leo_at_last_fetch:
            self.caught_up_at = now

    def is_caught_up(self, leader_leo: int, now: float, lag_time_max_s: float) -> bool:
        """Reached the LEO, or was level with the leader less than `lag_time_max_s` ago."""
        return self.log_end_offset == leader_leo or now - self.caught_up_at <= lag_time_max_s


class Proposal(enum.Enum):
    """Why an ISR change is in flight."""

    EXPAND = "expand"
    SHRINK = "shrink"
    RELEASE = "release"
    """The ISR stays, and nobody else is eligible any more."""


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """One ISR change on its way to ZooKeeper: a conditional write on `zk_version`.

    added: broker id → incarnation to check in the same transaction. eligible: who is from then on.
    """

    kind: Proposal
    isr: tuple[int, ...]
    zk_version: int
    added: dict[int, int] = field(default_factory=dict)
    eligible: tuple[int, ...] = ()


@dataclass(slots=True, eq=False)
class Leadership:
    """This broker leads one partition at `leader_epoch`."""

    broker_id: int
    leader_epoch: int
    epoch_start_offset: int
    controller_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    """The committed one, of replicas only."""
    eligible: tuple[int, ...]
    """Who else has everything committed, as ZooKeeper has it."""
    zk_version: int
    high_watermark: int
    min_insync_replicas: int
    lag_time_max_s: float
    replication_factor: int
    """How many of the replicas count for the minimum: not those that a reassignment is adding, until it is done."""
    is_reassigned: bool
    """A reassignment is adding or removing replicas."""
    leading_since_offset: int
    """Where the log ended when this broker began to lead without interruption. Until HW is there, what a predecessor
    has shown to clients may lie above it; an epoch that only follows on our own changes nothing of that."""
    followers: dict[int, FollowerProgress] = field(default_factory=dict)
    proposal: IsrProposal | None = None
    has_strangers: bool = False
    """ZooKeeper has members of the ISR that are no replicas."""
    frozen: bool = False
    """ZooKeeper holds another leader or epoch: propose nothing, keep the union, wait for LeaderAndIsr."""
    quorum: list[FollowerProgress] = field(default_factory=list)
    """The followers that HW waits for; derived from `maximal_isr` and the joining, kept since it is read per fetch."""
    quorum_offset: int = 0
    """The smallest LEO that the quorum has had in this epoch; as HW, it never goes back, but no minimum holds it."""

    @classmethod
    def begin(
        cls,
        *,
        broker_id: int,
        leader_epoch: int,
        controller_epoch: int,
        log_end_offset: int,
        high_watermark: int,
        replicas: Iterable[int],
        replication_factor: int,
        is_reassigned: bool = False,
        isr: Iterable[int],
        eligible: Iterable[int] = (),
        zk_version: int,
        min_insync_replicas: int,
        lag_time_max_s: float,
        now: float,
        predecessor: Leadership | None = None,
    ) -> Leadership:
        """Start leading: nothing is known of any follower yet, so HW stays until all of the ISR have fetched.

        ISR members get a full lag time before they can be removed; outsiders must catch up in this epoch.
        `predecessor`: this broker's own leadership of the epoch before, if it led.
        """
        assigned, members = tuple(replicas), tuple(isr)
        isr_members = tuple(member for member in members if member in assigned)
        assert broker_id in isr_members, "the leader is always in the ISR"
        leadership = cls(
            broker_id=broker_id,
            leader_epoch=leader_epoch,
            epoch_start_offset=log_end_offset,
            controller_epoch=controller_epoch,
            replicas=assigned,
            isr=isr_members,
            eligible=tuple(eligible),
            zk_version=zk_version,
            high_watermark=high_watermark,
            min_insync_replicas=min_insync_replicas,
            lag_time_max_s=lag_time_max_s,
            replication_factor=replication_factor,
            is_reassigned=is_reassigned,
            leading_since_offset=predecessor.leading_since_offset if predecessor else log_end_offset,
            has_strangers=isr_members != members,
        )
        for replica in leadership.replicas:
            if replica != broker_id:
                caught_up_at = now if replica in isr_members else NEVER
                leadership.followers[replica] = FollowerProgress(replica, caught_up_at=caught_up_at)
        leadership.rebuild_quorum(log_end_offset, now)
        return leadership

    # --- what is committed -------------------------------------------------------------------------------------

    @property
    def maximal_isr(self) -> frozenset[int]:
        """Committed ∪ proposed: whoever could be elected by what ZooKeeper may hold now."""
        proposed = self.proposal.isr if self.proposal else ()
        return frozenset(self.isr) | frozenset(proposed)

    @property
    def required_isr_size(self) -> int:
        """How many in-sync replicas a commit needs: min(min.insync.replicas, replication factor)."""
        return min(self.min_insync_replicas, self.replication_factor)

    @property
    def has_enough_replicas(self) -> bool:
        """The ISR has the required size. Asked for every produce request, so it is not computed from that."""
        size = len(self.isr)
        return size >= self.min_insync_replicas or size >= self.replication_factor

    @property
    def is_under_replicated(self) -> bool:
        """Fewer are in sync than held it before what is under way, as Kafka counts it: who is only being added does not
        lack."""
        return len(self.isr) < self.replication_factor

    @property
    def is_at_minimum(self) -> bool:
        """One more that is lost, and nothing is committed."""
        return len(self.isr) == self.required_isr_size

    @property
    def may_commit(self) -> bool:
        """Enough are in sync, and nobody counts as having everything who would not get what is committed now."""
        return self.has_enough_replicas and not self.eligible

    def rebuild_quorum(self, log_end_offset: int, now: float) -> None:
        """Derive `quorum` anew: after every change of ISR or proposal, and now and then for who stopped fetching."""
        maximal = self.maximal_isr
        self.quorum = [
            progress
            for progress in self.followers.values()
            if progress.broker_id in maximal or self._is_joining(progress, log_end_offset, now)
        ]

    def _is_joining(self, progress: FollowerProgress, log_end_offset: int, now: float) -> bool:
        return progress.log_end_offset >= self.epoch_start_offset and progress.is_caught_up(
            log_end_offset, now, self.lag_time_max_s
        )

    def advance_high_watermark(self, log_end_offset: int) -> bool:
        """Raise HW to the smallest LEO of the quorum, if it may move. Returns whether it did."""
        candidate = log_end_offset
        for progress in self.quorum:
            if progress.log_end_offset < candidate:
                candidate = progress.log_end_offset
        if candidate > self.quorum_offset:
            self.quorum_offset = candidate
        if candidate <= self.high_watermark or not self.may_commit:
            return False
        assert candidate <= log_end_offset, "HW above LEO"
        self.high_watermark = candidate
        return True

    # --- who is in sync ----------------------------------------------------------------------------------------

    def record_fetch(
        self, progress: FollowerProgress, fetch_offset: int, log_end_offset: int, incarnation: int, now: float
    ) -> bool:
        """A follower fetched in this epoch. Returns whether HW advanced."""
        if progress.incarnation not in (-1, incarnation) and progress.broker_id not in self.isr:
            # Another life of that broker: what the last one had proves nothing.
            progress.caught_up_at = progress.last_fetch_at = NEVER
        progress.record_fetch(fetch_offset, log_end_offset, incarnation, now)
        if progress not in self.quorum and self._is_joining(progress, log_end_offset, now):
            self.quorum.append(progress)
        return self.advance_high_watermark(log_end_offset)

    def wants_to_expand(self, progress: FollowerProgress) -> bool:
        """Whether this follower should be proposed for the ISR now (all of rule 10 but the incarnation, which the
        transaction checks, and whether its broker lives and where its log begins, which the caller looks at)."""
        return (
            self.proposal is None
            and not self.frozen
            and progress.broker_id not in self.isr
            and progress.log_end_offset >= self.high_watermark
            and progress.log_end_offset >= self.quorum_offset
            and progress.log_end_offset >= self.epoch_start_offset
        )

    def propose_expand(self, progress: FollowerProgress) -> IsrProposal:
        assert self.wants_to_expand(progress)
        isr = tuple(r for r in self.replicas if r in self.isr or r == progress.broker_id)
        self.proposal = IsrProposal(
            Proposal.EXPAND,
            isr,
            self.zk_version,
            added={progress.broker_id: progress.incarnation},
            eligible=self._eligible_beside(isr),
        )
        if progress not in self.quorum:
            self.quorum.append(progress)
        return self.proposal

    def propose_shrink(self, log_end_offset: int, now: float) -> IsrProposal | None:
        """Propose to remove who lags, if anybody does and nothing is in flight.

        A follower that sits at the LEO stays, alive or not: a dead broker is the controller's to remove, with a new
        epoch.
        """
        if self.proposal is not None or self.frozen:
            return None
        lagging = {
            member
            for member in self.isr
            if member != self.broker_id
            and not self.followers[member].is_caught_up(log_end_offset, now, self.lag_time_max_s)
        }
        if not lagging and not self.has_strangers:
            return None
        isr = tuple(member for member in self.isr if member not in lagging)
        assert self.broker_id in isr, "the leader is always in the ISR"
        self.proposal = IsrProposal(Proposal.SHRINK, isr, self.zk_version, eligible=self._eligible_beside(isr))
        return self.proposal

    def propose_release(self) -> IsrProposal | None:
        """Propose that nobody outside the ISR is eligible, where it is large enough without them: the minimum became
        smaller, or the controller did not know it."""
        if self.proposal is not None or self.frozen or not self.eligible or not self.has_enough_replicas:
            return None
        self.proposal = IsrProposal(Proposal.RELEASE, self.isr, self.zk_version)
        return self.proposal

    def _eligible_beside(self, isr: tuple[int, ...]) -> tuple[int, ...]:
        """Who has everything committed once the ISR is this one: all that had it, while nothing can be committed."""
        if len(isr) >= self.required_isr_size:
            return ()
        return tuple(r for r in self.replicas if r not in isr and (r in self.isr or r in self.eligible))

    def has_no_lag(self, log_end_offset: int) -> bool:
        """Time alone changes nothing: everybody whom HW waits for has everything."""
        return all(progress.log_end_offset == log_end_offset for progress in self.quorum)

    # --- how a proposal ends -----------------------------------------------------------------------------------

    def commit(self, isr: Iterable[int], eligible: Iterable[int], zk_version: int) -> None:
        """ZooKeeper has these at `zk_version`, for this leader and epoch: our write, or one to adopt."""
        members = tuple(isr)
        self.isr = tuple(member for member in members if member in self.replicas)
        self.has_strangers = self.isr != members
        self.eligible = tuple(eligible)
        self.zk_version = zk_version
        self.proposal = None
        assert self.broker_id in self.isr, "the leader is always in the ISR"

    def reject(self) -> None:
        """The proposal was certainly not written, since who would join has been restarted: drop it, and do not wait
        for the end offset of a life that is over."""
        for broker_id in self.proposal.added if self.proposal else ():
            self.followers[broker_id].log_end_offset = UNKNOWN_OFFSET
        self.proposal = None

    def freeze(self) -> None:
        """Another leader or epoch stands in ZooKeeper: keep the union as quorum, propose nothing more."""
        self.frozen = True
