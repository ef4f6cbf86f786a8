"""What a term of the controller consists of, built once, from below.

What is asked for in a znode has one row in `first_looks`, what is asked for in a request one in `answers`, what brokers
answer one in `on_answers`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from strandline.controller.agenda import Event
from strandline.controller.brokers.broker_changes import BrokerChanges
from strandline.controller.brokers.controlled_shutdown import ControlledShutdown
from strandline.controller.brokers.role_answers import RoleAnswers
from strandline.controller.controller_context import LiveBroker
from strandline.controller.liveness.suspects import Suspects
from strandline.controller.partitions.accepted_losses import AcceptedLosses
from strandline.controller.partitions.elect_leaders import ElectLeaders
from strandline.controller.partitions.preferred_elections import PreferredElections
from strandline.controller.partitions.rebalance import Rebalance
from strandline.controller.partitions.recovery import Recovery
from strandline.controller.partitions.settlement import Settlement
from strandline.controller.partitions.waits import Waits
from strandline.controller.reassignments.reassignment_requests import ReassignmentRequests
from strandline.controller.reassignments.reassignment_store import ReassignmentStore
from strandline.controller.reassignments.reassignments import Reassignments
from strandline.controller.reassignments.tools_znode import AskedByTools
from strandline.controller.term.asked_elections import AskedElections
from strandline.controller.term.notifications import Notifications
from strandline.controller.tools import Tools
from strandline.controller.topics.creation import Creation
from strandline.controller.topics.deletion import Deletion
from strandline.controller.topics.deletion_tracker import DeletionTracker
from strandline.controller.topics.growth import Growth
from strandline.controller.topics.topic_changes import TopicChanges
from strandline.controller.topics.topic_store import TopicStore
from strandline.protocol.messages import (
    AlterPartitionReassignmentsRequest,
    ControlledShutdownRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ElectLeadersRequest,
    LeaderAndIsrRequest,
    ListPartitionReassignmentsRequest,
    Message,
    Request,
    StopReplicaRequest,
)
from strandline.protocol.types import TopicId
from strandline.protocol.znodes import (
    IsrChangeNotificationZnode,
    LogDirEventNotificationZnode,
)


class Duties:
    """One term's. The stores and `suspects` know the term's session with ZooKeeper; nothing else in here does."""

    def __init__(
        self,
        tools: Tools,
        topic_store: TopicStore,
        reassignment_store: ReassignmentStore,
        suspects: Suspects,
        draw_id: Callable[[], TopicId],
        state_change_log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        # Each is built of what stands above it.
        self.waits = Waits(tools.context, tools.agenda, tools.log)
        self.settlement = Settlement(tools, self.waits, state_change_log)
        self.recovery = Recovery(tools, self.settlement, self.waits)
        self.topic_store = topic_store
        tracker = self.deletions = DeletionTracker()
        growth = Growth(tools, self.topic_store, self.settlement)
        self.topic_changes = TopicChanges(tools, self.topic_store, self.settlement, tracker, growth.look)
        topics = self.topic_changes
        self.deletion = Deletion(tools, self.topic_store, tracker, topics.look, topics.tell_unfinished_deletions)
        moves = Reassignments(tools, self.settlement, reassignment_store)
        asked_by_tools, reassignment_requests = AskedByTools(tools, moves), ReassignmentRequests(tools, moves)
        self.deletion.on_begun = asked_by_tools.topics_change
        self.suspects = suspects
        self.broker_changes = BrokerChanges(
            tools, self.settlement, tracker, self.suspects, self.deletion.go_on, self.topic_store.unreadable
        )
        roles = RoleAnswers(tools, self.settlement)
        elections = PreferredElections(tools, self.settlement)
        losses = AcceptedLosses(tools, self.settlement, self.recovery.ask)
        self.rebalance = Rebalance(tools, PreferredElections(tools, self.settlement, is_automatic=True))
        isr_change, log_dir_event = IsrChangeNotificationZnode, LogDirEventNotificationZnode
        self.first_looks: tuple[Event, ...] = (
            self.deletion.look,
            growth.look,
            Notifications(tools, isr_change.FOLDER, isr_change.decode, self.settlement.on_isr_changes).look,
            Notifications(tools, log_dir_event.FOLDER, log_dir_event.decode, roles.on_failed_logs).look,
            asked_by_tools.look,
            AskedElections(tools, elections).look,
            self.broker_changes.watch_registrations,
        )
        """What others may have asked for in ZooKeeper before this term; each sets a watch for what they ask later."""
        self.answers: dict[type[Request], Callable[[Any], Awaitable[Message]]] = {
            CreateTopicsRequest: Creation(tools, self.topic_store, topics.look, draw_id).answer,
            DeleteTopicsRequest: self.deletion.answer,
            CreatePartitionsRequest: growth.answer,
            ElectLeadersRequest: ElectLeaders(tools, elections, losses).answer,
            AlterPartitionReassignmentsRequest: reassignment_requests.alter,
            ListPartitionReassignmentsRequest: reassignment_requests.list,
            ControlledShutdownRequest: ControlledShutdown(tools, self.settlement).answer,
        }
        """What clients and brokers ask of the controller."""
        self.on_answers: dict[type[Request], Callable[[LiveBroker, Any, Any], Awaitable[None]]] = {
            LeaderAndIsrRequest: roles.on_answered,
            StopReplicaRequest: self.deletion.on_stopped,
        }
        """What follows from an answer of a broker, as an event."""
