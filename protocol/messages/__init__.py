"""Every message of the protocol, one class each; see `base` for how a message becomes bytes."""

from strandline.protocol.messages.admin import *  # noqa: F403
from strandline.protocol.messages.base import *  # noqa: F403
from strandline.protocol.messages.cluster import *  # noqa: F403
from strandline.protocol.messages.configs import *  # noqa: F403
from strandline.protocol.messages.data import *  # noqa: F403
from strandline.protocol.messages.elections import *  # noqa: F403
from strandline.protocol.messages.groups import *  # noqa: F403
from strandline.protocol.messages.inventory import *  # noqa: F403
from strandline.protocol.messages.operations import *  # noqa: F403
from strandline.protocol.messages.partitions import *  # noqa: F403
from strandline.protocol.messages.producers import *  # noqa: F403
from strandline.protocol.messages.quotas import *  # noqa: F403
from strandline.protocol.messages.reassignments import *  # noqa: F403
from strandline.protocol.messages.users import *  # noqa: F403
