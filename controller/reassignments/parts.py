"""What a term has of this room: built together, since each part is given the one before."""

from __future__ import annotations

from strandline.controller.partitions.settlement import Settlement
from strandline.controller.reassignments.reassignment_requests import ReassignmentRequests
from strandline.controller.reassignments.reassignment_store import ReassignmentStore
from strandline.controller.reassignments.reassignments import Reassignments
from strandline.controller.reassignments.tools_znode import AskedByTools
from strandline.controller.tools import Tools
from strandline.controller.topics.deletion import Deletion
from strandline.runtime.coordination import Coordination


class ReassignmentParts:
    """`requests`: what clients ask. `asked_by_tools`: what stands in `/admin/reassign_partitions`."""

    def __init__(self, tools: Tools, settlement: Settlement, deletion: Deletion, coordination: Coordination) -> None:
        store = ReassignmentStore(coordination, tools.store, tools.log)
        reassignments = Reassignments(tools, settlement, store)
        self.requests = ReassignmentRequests(tools, reassignments)
        self.asked_by_tools = AskedByTools(tools, reassignments)
        deletion.on_begun = self.asked_by_tools.topics_change
