"""Where Kafka's schema and our messages differ by more than a name (`converter`): what one side has as a map or as a
plain list, and the other as a list of structs; what an old version means by a value, or by saying nothing.

Keys are (our message's class, its field). A reader gets kio's entity, which knows its version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kio.schema.errors import ErrorCode as KioErrorCode

from strandline.protocol.errors import RemoteProtocolError
from strandline.protocol.messages import PREFERRED
from strandline.protocol.topic_name import shortened


def _names_of_metadata(entity: Any) -> list[str] | None:
    """Version 0 asks for all topics by naming none, later ones by null. Versions 10 and 11 have a place for ids and do
    not mean them (KAFKA-13028)."""
    if entity.topics is None or (entity.__version__ == 0 and not entity.topics):
        return None
    has_ids = entity.__version__ >= 12
    for topic in entity.topics:
        if topic.name is None and (not has_ids or topic.topic_id is None):
            raise RemoteProtocolError(f"a topic without a name in Metadata version {entity.__version__}")
    return [topic.name for topic in entity.topics if not (has_ids and topic.topic_id is not None)]


def _ids(entity: Any) -> list[bytes]:
    """Where name and id both stand, the id counts."""
    if entity.__version__ < 12:
        return []
    return [topic.topic_id.bytes for topic in entity.topics or () if topic.topic_id is not None]


def _may_create(entity: Any) -> bool:
    """Before version 4 nobody could say no."""
    return bool(getattr(entity, "allow_auto_topic_creation", True))


def _election_type(entity: Any) -> int:
    """Version 0 knows preferred elections only (KIP-460)."""
    return int(getattr(entity, "election_type", PREFERRED))


def _assignments(entity: Any) -> dict[int, list[int]]:
    found = {part.partition_index: list(part.broker_ids) for part in entity.assignments}
    if len(found) < len(entity.assignments):
        raise RemoteProtocolError(f"the assignment of topic {shortened(entity.name)!r} names a partition twice")
    return found


def _configs(entity: Any) -> dict[str, str]:
    """A key without a value has the default."""
    return {config.name: config.value for config in entity.configs if config.value is not None}


def _since(version: int) -> Callable[[Any], bool]:
    """What clients understand that speak this version or a later one."""
    return lambda entity: bool(entity.__version__ >= version)


READ: Mapping[tuple[str, str], Callable[[Any], Any]] = {
    ("JoinGroupRequest", "joins_again_with_its_id"): _since(4),
    ("JoinGroupRequest", "understands_skip_assignment"): _since(9),
    ("ElectLeadersRequest", "election_type"): _election_type,
    ("MetadataRequest", "topics"): _names_of_metadata,
    ("MetadataRequest", "allow_auto_topic_creation"): _may_create,
    ("MetadataRequest", "topic_ids"): _ids,
    ("CreatableTopic", "assignments"): _assignments,
    ("CreatableTopic", "configs"): _configs,
}


def kio_error_code(code: int) -> KioErrorCode:
    """Codes of other versions than kio knows are errors that it does not know."""
    try:
        return KioErrorCode(code)
    except ValueError:
        return KioErrorCode.unknown_server_error
