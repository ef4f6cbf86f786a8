"""In which of Kafka's states a controller is while it handles an event, and how lines call it: both depend on whose
method the event is."""

from __future__ import annotations

from strandline.controller.agenda import Event
from strandline.controller.brokers.broker_changes import BrokerChanges
from strandline.controller.brokers.controlled_shutdown import ControlledShutdown
from strandline.controller.brokers.role_answers import RoleAnswers
from strandline.controller.counts import ControllerState
from strandline.controller.liveness.suspects import Suspects
from strandline.controller.partitions.accepted_losses import AcceptedLosses
from strandline.controller.partitions.preferred_elections import PreferredElections
from strandline.controller.partitions.rebalance import Rebalance
from strandline.controller.partitions.recovery import Recovery
from strandline.controller.partitions.settlement import Settlement
from strandline.controller.partitions.waits import Waits
from strandline.controller.reassignments.reassignment_requests import ReassignmentRequests
from strandline.controller.reassignments.reassignments import Reassignments
from strandline.controller.reassignments.tools_znode import AskedByTools
from strandline.controller.term.asked_elections import AskedElections
from strandline.controller.term.notifications import Notifications
from strandline.controller.topics.creation import Creation
from strandline.controller.topics.deletion import Deletion
from strandline.controller.topics.first_leaders import FirstLeaders
from strandline.controller.topics.growth import Growth
from strandline.controller.topics.topic_changes import TopicChanges
from strandline.protocol.znodes import LogDirEventNotificationZnode

STATES: dict[type, ControllerState] = {
    AcceptedLosses: ControllerState.MANUAL_LEADER_BALANCE,
    AskedByTools: ControllerState.ALTER_PARTITION_REASSIGNMENT,
    AskedElections: ControllerState.MANUAL_LEADER_BALANCE,
    BrokerChanges: ControllerState.BROKER_CHANGE,
    ControlledShutdown: ControllerState.CONTROLLED_SHUTDOWN,
    Creation: ControllerState.TOPIC_CHANGE,
    Deletion: ControllerState.TOPIC_DELETION,
    FirstLeaders: ControllerState.TOPIC_CHANGE,
    Growth: ControllerState.TOPIC_CHANGE,
    Rebalance: ControllerState.AUTO_LEADER_BALANCE,
    Reassignments: ControllerState.ALTER_PARTITION_REASSIGNMENT,
    ReassignmentRequests: ControllerState.ALTER_PARTITION_REASSIGNMENT,
    Recovery: ControllerState.BROKER_CHANGE,
    RoleAnswers: ControllerState.LEADER_AND_ISR_RESPONSE_RECEIVED,
    Settlement: ControllerState.UNCLEAN_LEADER_ELECTION_ENABLE,
    Suspects: ControllerState.BROKER_CHANGE,
    TopicChanges: ControllerState.TOPIC_CHANGE,
    Waits: ControllerState.BROKER_CHANGE,
}
"""What is none of these is about the role of controller itself."""
OF_METHODS: dict[object, ControllerState] = {
    ReassignmentRequests.look_up: ControllerState.LIST_PARTITION_REASSIGNMENT,
    Settlement.settle_by_topics: ControllerState.TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE,
}
"""These go before their owners."""


def state_of(event: Event) -> ControllerState:
    """What the controller is at while it handles this."""
    function = _innermost(event)
    owner = getattr(function, "__self__", None)
    if isinstance(owner, Notifications):
        is_log_dir = owner.folder == LogDirEventNotificationZnode.FOLDER
        return ControllerState.LOG_DIR_CHANGE if is_log_dir else ControllerState.ISR_CHANGE
    if isinstance(owner, PreferredElections):
        balance, asked = ControllerState.AUTO_LEADER_BALANCE, ControllerState.MANUAL_LEADER_BALANCE
        return balance if owner.is_automatic else asked
    if (state := OF_METHODS.get(getattr(function, "__func__", None))) is not None:
        return state
    return STATES.get(type(owner), ControllerState.CONTROLLER_CHANGE)


def name_of(event: Event) -> str:
    """As `Creation.create`: no address of an object, which says nothing and is another one each time."""
    function = _innermost(event)
    return str(getattr(function, "__qualname__", type(function).__name__))


def _innermost(event: Event) -> object:
    function: object = event
    while (inner := getattr(function, "func", None) or getattr(function, "__wrapped__", None)) is not None:
        function = inner
    return function
