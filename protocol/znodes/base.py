"""What all znode classes share: the paths, the error, strict JSON and the text form of ids."""

from __future__ import annotations

import base64
import binascii
from typing import Protocol, TypeVar

import msgspec

BROKER_IDS_PATH = "/brokers/ids"
BROKER_INCARNATIONS_PATH = "/brokers/incarnations"
BROKER_SEQUENCE_ID_PATH = "/brokers/seqid"
TOPICS_PATH = "/brokers/topics"
CONTROLLER_PATH = "/controller"
CONTROLLER_EPOCH_PATH = "/controller_epoch"
OUR_CONTROLLER_EPOCH_PATH = "/controller_epoch/strandline"
DELETE_TOPICS_PATH = "/admin/delete_topics"
REASSIGN_PARTITIONS_PATH = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION_PATH = "/admin/preferred_replica_election"
ISR_CHANGE_NOTIFICATION_PATH = "/isr_change_notification"
LOG_DIR_EVENT_NOTIFICATION_PATH = "/log_dir_event_notification"
LATEST_PRODUCER_ID_BLOCK_PATH = "/latest_producer_id_block"
CONFIG_PATH = "/config"
CONFIG_CHANGES_PATH = "/config/changes"
CLUSTER_ID_PATH = "/cluster/id"

PERSISTENT_PATHS = (
    BROKER_IDS_PATH,
    BROKER_INCARNATIONS_PATH,
    BROKER_SEQUENCE_ID_PATH,
    TOPICS_PATH,
    CONFIG_CHANGES_PATH,
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
    DELETE_TOPICS_PATH,
    ISR_CHANGE_NOTIFICATION_PATH,
    LATEST_PRODUCER_ID_BLOCK_PATH,
    LOG_DIR_EVENT_NOTIFICATION_PATH,
)
"""Created, null, by whoever starts first. (`/controller_epoch` and `/cluster/id` are created with their content.)"""

MAX_ZNODE_BYTES = 1024 * 1024
"""ZooKeeper's own limit (jute.maxbuffer)."""


class InvalidZnode(Exception):
    """A znode whose content cannot be understood; the text names path and reason. Report that one thing, go on."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"znode {path} cannot be read: {reason}")
        self.path = path
        self.reason = reason


class Versioned(Protocol):
    @property
    def version(self) -> int: ...


T = TypeVar("T")
V = TypeVar("V", bound=Versioned)


def read_json(path: str, data: bytes, cls: type[T]) -> T:
    """The JSON as a `cls`, types checked strictly. InvalidZnode."""
    if len(data) > MAX_ZNODE_BYTES:
        raise InvalidZnode(path, f"{len(data)} bytes, more than {MAX_ZNODE_BYTES}")
    try:
        return msgspec.json.decode(data, type=cls)
    except (ValueError, RecursionError) as error:  # msgspec's errors and UnicodeDecodeError are ValueErrors
        raise InvalidZnode(path, str(error)) from None


def read_versioned(path: str, data: bytes, cls: type[V], highest: int) -> V:
    """The JSON as a `cls`. InvalidZnode also for a version that this build does not know: its fields may mean something
    else."""
    json = read_json(path, data, cls)
    if not 1 <= json.version <= highest:
        raise InvalidZnode(path, f"version {json.version}, this build knows 1 to {highest}: upgrade it")
    return json


def encode_uuid(uuid: bytes) -> str:
    """16 bytes as Kafka prints ids: url-safe base64 without padding, 22 characters."""
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode()


def decode_uuid(path: str, text: str) -> bytes:
    """The 16 bytes of an id in the text form of `encode_uuid`. InvalidZnode."""
    try:
        uuid = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidZnode(path, f"{text!r} is no id: {error}") from None
    if len(uuid) != 16:
        raise InvalidZnode(path, f"{text!r} is no id: {len(uuid)} bytes, not 16")
    return uuid
