"""What a controller counts, over all its terms: plain integers and histograms, for whoever looks."""

from __future__ import annotations

from enum import IntEnum

import trio

from strandline.runtime.recent_times import RecentTimes


class ControllerState(IntEnum):
    """What the controller is at, by Kafka's numbers. 12, 16 and 17 are missing: a term ends without an event, an answer
    to UpdateMetadata is none, and there are no features to update."""

    IDLE = 0
    CONTROLLER_CHANGE = 1
    BROKER_CHANGE = 2
    TOPIC_CHANGE = 3
    TOPIC_DELETION = 4
    ALTER_PARTITION_REASSIGNMENT = 5
    AUTO_LEADER_BALANCE = 6
    MANUAL_LEADER_BALANCE = 7
    CONTROLLED_SHUTDOWN = 8
    ISR_CHANGE = 9
    LEADER_AND_ISR_RESPONSE_RECEIVED = 10
    LOG_DIR_CHANGE = 11
    UNCLEAN_LEADER_ELECTION_ENABLE = 13
    TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE = 14
    LIST_PARTITION_REASSIGNMENT = 15


class ControllerCounts:
    """state: of the event in hand. event_times: how long events took, by what they were about. queue_times: how long
    they waited for their turn."""

    def __init__(self) -> None:
        self.state = ControllerState.IDLE
        self.event_times: dict[ControllerState, RecentTimes] = {state: RecentTimes() for state in ControllerState}
        self.queue_times = RecentTimes()
        self.unclean_elections = 0
        self._began_s = 0.0

    def begin(self, state: ControllerState) -> None:
        """An event begins."""
        self.state, self._began_s = state, trio.current_time()

    def end(self) -> None:
        """It is over, whatever became of it."""
        if self.state is not ControllerState.IDLE:
            self.event_times[self.state].record_s(trio.current_time() - self._began_s)
            self.state = ControllerState.IDLE
