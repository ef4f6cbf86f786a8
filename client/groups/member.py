"""The task of one member: asks the coordinator what `Membership` wishes, one request at a time, and hands it what was
answered. As leader it assigns, by the layout that its metadata has, and watches that for changes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType

import trio

from strandline.client.errors import BrokerMisbehaved, ClientError
from strandline.client.groups.assignors import ASSIGNORS, RebalanceProtocol
from strandline.client.groups.coordinator import MOVED, Coordinator
from strandline.client.groups.membership import Membership, Wish
from strandline.client.lookup import is_retriable
from strandline.client.metadata import backoff_ms
from strandline.client.settings import ConsumerSettings
from strandline.client.signals import News
from strandline.protocol.consumer_protocol import (
    CONSUMER,
    Assignment,
    InvalidConsumerData,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from strandline.protocol.topic_name import is_topic_name
from strandline.runtime.client_environment import ClientEnvironment

JOIN_GRACE_MS = 5_000
"""A join is answered within the longest rebalance timeout of the group, and this much later at the latest."""

LEAVE_WITHIN_MS = 2_000
"""Who leaves does not wait longer than this for the coordinator, which notices by itself after the session timeout."""

LOADING_OR_MOVED = (*MOVED, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

Layout = Callable[[Sequence[str]], Awaitable[Mapping[str, int]]]
"""Topics → how many partitions each of those has that exist."""


class Member:
    """Of one group, for as long as its consumer subscribes to the same group."""

    def __init__(
        self,
        settings: ConsumerSettings,
        environment: ClientEnvironment,
        coordinator: Coordinator,
        layout: Layout,
        on_change: Callable[[], None],
    ) -> None:
        """`layout` waits until it knows; `on_change`: a poll may have something to do."""
        self.group_topics: tuple[str, ...] = ()
        """What the members subscribe to, as their leader knows it."""
        self.assigned_layout: Mapping[str, int] = MappingProxyType({})
        """By what it has assigned."""
        self._settings = settings
        self._environment = environment
        self._coordinator = coordinator
        self._layout = layout
        self._on_change = on_change
        self._news = News()
        self._members: Sequence[JoinGroupResponseMember] = ()
        """Of a leader; others are told of none."""
        self._has_to_assign = False
        self._failures = 0

    def look(self) -> None:
        """Something happened to the membership from outside."""
        self._news.tell()

    @property
    def is_cooperative(self) -> bool:
        """It gives nothing up before it joins: only if all ways of assigning that it has know that."""
        names = self._settings.partition_assignment_strategy
        return all(ASSIGNORS[name].protocol is RebalanceProtocol.COOPERATIVE for name in names)

    async def serve(self, membership: Membership) -> None:
        """Until cancelled."""
        requests = {
            Wish.JOIN: self._join,
            Wish.SYNC: self._sync,
            Wish.HEARTBEAT: self._heartbeat,
            Wish.LEAVE: self.leave,
        }
        self._failures = 0
        while True:
            now = trio.current_time()
            wish = membership.wish(now)
            if wish is None:
                await self._news.wait_until(membership.next_time(now))
                continue
            try:
                await requests[wish](membership)
            except ClientError as error:
                if wish is Wish.SYNC:
                    membership.not_synced()
                if not is_retriable(error):
                    membership.fail(error)
                self._postpone(membership)
            self._on_change()

    def _postpone(self, membership: Membership, first_at_once: bool = False) -> None:
        """The request was not granted: repeat it, or another one, after a while."""
        self._failures += 1
        attempt = self._failures - first_at_once
        wait_ms = backoff_ms(self._settings, attempt, self._environment) if attempt else 0.0
        membership.postpone(trio.current_time() + wait_ms / 1000)

    def _answered(self, membership: Membership, code: int) -> bool:
        """Whether it was granted, or refused for a reason that concerns the membership."""
        self._coordinator.heard(code)
        if code in LOADING_OR_MOVED:
            self._postpone(membership)
            return False
        if code == ErrorCode.NONE:
            self._failures = 0
        else:
            self._postpone(membership, first_at_once=True)
        return True

    # --- requests ----------------------------------------------------------------------------------------------

    async def _join(self, membership: Membership) -> None:
        settings, said = self._settings, membership.join()
        protocols = [
            JoinGroupRequestProtocol(
                name,
                encode_subscription(
                    Subscription(
                        said.topics,
                        ASSIGNORS[name].user_data(said.had, said.generation),
                        said.owned,
                        said.generation,
                        settings.client_rack or None,
                    )
                ),
            )
            for name in settings.partition_assignment_strategy
        ]
        request = JoinGroupRequest(
            settings.group_id,
            settings.session_timeout_ms,
            membership.identity.member_id,
            CONSUMER,
            protocols,
            settings.max_poll_interval_ms,
            settings.group_instance_id or None,
        )
        limit_ms = max(settings.request_timeout_ms, settings.max_poll_interval_ms + JOIN_GRACE_MS)
        answer = await self._coordinator.ask_and_wait(request, JoinGroupResponse, timeout_ms=limit_ms)
        if self._answered(membership, answer.error_code):
            self._members, self._has_to_assign = answer.members, not answer.skip_assignment
            membership.joined(answer)

    async def _sync(self, membership: Membership) -> None:
        settings = self._settings
        request = SyncGroupRequest(
            settings.group_id,
            membership.identity.generation,
            membership.identity.member_id,
            await self._assign(membership.protocol),
            settings.group_instance_id or None,
            CONSUMER,
            membership.protocol,
        )
        limit_ms = max(settings.request_timeout_ms, settings.max_poll_interval_ms + JOIN_GRACE_MS)
        answer = await self._coordinator.ask_and_wait(request, SyncGroupResponse, timeout_ms=limit_ms)
        if not self._answered(membership, answer.error_code) or answer.error_code != ErrorCode.NONE:
            membership.not_synced(answer.error_code)
            return
        try:
            given = decode_assignment(answer.assignment).partitions if answer.assignment else ()
            if any(partition < 0 for _, partition in given):
                raise InvalidConsumerData("a partition is negative")
        except InvalidConsumerData as error:
            membership.not_synced()
            raise BrokerMisbehaved(
                f"the leader of group {settings.group_id!r} assigned what is none: {error}"
            ) from error
        membership.synced(given, trio.current_time())

    async def _assign(self, protocol: str) -> list[SyncGroupRequestAssignment]:
        """As leader: to everybody. Who said what cannot be read gets nothing. Also a static leader that was started
        anew, and is to leave the group as it is, watches its topics from now on (KIP-814); who leads no more does not.
        """
        said: dict[str, Subscription] = {}
        for each in self._members:
            try:
                subscription = decode_subscription(each.metadata)
            except InvalidConsumerData:
                subscription = Subscription([])
            said[each.member_id] = Subscription(
                [topic for topic in subscription.topics if is_topic_name(topic)],
                subscription.user_data,
                subscription.owned_partitions,
                subscription.generation_id,
                subscription.rack_id,
                each.group_instance_id,
            )
        self.group_topics = tuple(sorted({topic for each in said.values() for topic in each.topics}))
        self.assigned_layout = dict(await self._layout(self.group_topics))
        if not said or not self._has_to_assign or protocol not in ASSIGNORS:
            return []
        return [
            SyncGroupRequestAssignment(member_id, encode_assignment(Assignment(partitions)))
            for member_id, partitions in ASSIGNORS[protocol].assign(said, self.assigned_layout).items()
        ]

    async def _heartbeat(self, membership: Membership) -> None:
        settings, identity = self._settings, membership.identity
        request = HeartbeatRequest(
            settings.group_id, identity.generation, identity.member_id, settings.group_instance_id or None
        )
        # A second and a third one fit into the session if this one is lost.
        limit_ms = min(settings.request_timeout_ms, settings.session_timeout_ms / 3)
        answer = await self._coordinator.ask_quickly(request, HeartbeatResponse, timeout_ms=limit_ms)
        if identity != membership.identity:
            return  # a commit has learnt meanwhile that this member is none any more
        if self._answered(membership, answer.error_code):
            membership.beat(trio.current_time())
            if answer.error_code != ErrorCode.NONE:
                membership.refused(answer.error_code)

    async def leave(self, membership: Membership) -> None:
        """Say so, once; static members do not, since they are to find their place again (KIP-345)."""
        settings, member_id = self._settings, membership.identity.member_id
        membership.left()
        if not member_id or settings.group_instance_id:
            return
        request = LeaveGroupRequest(settings.group_id, members=[MemberIdentity(member_id)])
        try:
            await self._coordinator.ask_quickly(request, LeaveGroupResponse, timeout_ms=LEAVE_WITHIN_MS)
        except ClientError:
            pass  # the session ends by itself
