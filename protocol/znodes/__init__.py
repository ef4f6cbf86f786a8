"""What ZooKeeper holds: one class per znode = path + encode + decode. Kafka's JSON (3.9), with all fields always.

| path                                      | class                                | content                  |
|-------------------------------------------|--------------------------------------|--------------------------|
| /brokers/ids/<id>                         | BrokerIdZnode, ephemeral             | czxid: the broker epoch  |
| /brokers/incarnations/<id>                | BrokerIncarnationZnode               | version: counts starts   |
| /brokers/topics/<t>                       | TopicZnode                           | assignment, topic id     |
| /brokers/topics/<t>/<topic id>            | TopicIdZnode                         | empty                    |
| /brokers/topics/<t>/partitions/<p>/state  | PartitionStateZnode                  | leader, ISR              |
| /controller                               | ControllerZnode, ephemeral           | who and since when       |
| /controller_epoch                         | ControllerEpochZnode                 | a bare integer           |
| /controller_epoch/strandline              | ControllerEpochZnode                 | of our latest term       |
| /admin/delete_topics/<t>                  | DeleteTopicZnode                     | empty                    |
| /admin/reassign_partitions                | ReassignPartitionsZnode              | while asked for          |
| /admin/preferred_replica_election         | PreferredReplicaElectionZnode        | while asked for          |
| /isr_change_notification/isr_change_<seq> | IsrChangeNotificationZnode           | which partitions changed |
| /log_dir_event_notification/log_dir_event_<seq> | LogDirEventNotificationZnode   | whose logs failed |
| /config/<type>/<name>                     | ConfigZnode                          | overrides                |
| /config/changes/config_change_<seq>       | ConfigChangeZnode                    | which overrides changed  |
| /latest_producer_id_block                 | ProducerIdBlockZnode                 | producer ids given out   |
| /cluster/id                               | ClusterIdZnode                       | drawn once               |

Rules: `decode(path, data)` raises InvalidZnode and nothing else, whatever the data; the path is only what the error
names. Fields that are missing in znodes of older tools take their defaults; unknown fields are ignored; a version above
the known ones is refused, since its meaning is unknown. Types are strict (true is no integer).
"""

from __future__ import annotations

from strandline.protocol.znodes.base import (
    BROKER_IDS_PATH,
    BROKER_INCARNATIONS_PATH,
    BROKER_SEQUENCE_ID_PATH,
    CLUSTER_ID_PATH,
    CONFIG_CHANGES_PATH,
    CONFIG_PATH,
    CONTROLLER_EPOCH_PATH,
    CONTROLLER_PATH,
    DELETE_TOPICS_PATH,
    ISR_CHANGE_NOTIFICATION_PATH,
    LATEST_PRODUCER_ID_BLOCK_PATH,
    LOG_DIR_EVENT_NOTIFICATION_PATH,
    MAX_ZNODE_BYTES,
    OUR_CONTROLLER_EPOCH_PATH,
    PERSISTENT_PATHS,
    PREFERRED_REPLICA_ELECTION_PATH,
    REASSIGN_PARTITIONS_PATH,
    TOPICS_PATH,
    InvalidZnode,
    encode_uuid,
)
from strandline.protocol.znodes.cluster import (
    BrokerEndpoint,
    BrokerIdZnode,
    BrokerIncarnationZnode,
    DeleteTopicZnode,
    PartitionStateZnode,
    TopicIdZnode,
    TopicZnode,
)
from strandline.protocol.znodes.control import (
    MAX_PRODUCER_ID,
    ClusterIdZnode,
    ConfigChangeZnode,
    ConfigZnode,
    ControllerEpochZnode,
    ControllerZnode,
    IsrChangeNotificationZnode,
    LogDirEventNotificationZnode,
    PreferredReplicaElectionZnode,
    ProducerIdBlockZnode,
    ReassignPartitionsZnode,
)

__all__ = [
    "BROKER_IDS_PATH",
    "BROKER_INCARNATIONS_PATH",
    "BROKER_SEQUENCE_ID_PATH",
    "CLUSTER_ID_PATH",
    "CONFIG_CHANGES_PATH",
    "CONFIG_PATH",
    "CONTROLLER_EPOCH_PATH",
    "CONTROLLER_PATH",
    "DELETE_TOPICS_PATH",
    "ISR_CHANGE_NOTIFICATION_PATH",
    "LATEST_PRODUCER_ID_BLOCK_PATH",
    "LOG_DIR_EVENT_NOTIFICATION_PATH",
    "MAX_PRODUCER_ID",
    "MAX_ZNODE_BYTES",
    "OUR_CONTROLLER_EPOCH_PATH",
    "PERSISTENT_PATHS",
    "PREFERRED_REPLICA_ELECTION_PATH",
    "REASSIGN_PARTITIONS_PATH",
    "TOPICS_PATH",
    "BrokerEndpoint",
    "BrokerIdZnode",
    "BrokerIncarnationZnode",
    "ClusterIdZnode",
    "ConfigChangeZnode",
    "ConfigZnode",
    "ControllerEpochZnode",
    "ControllerZnode",
    "DeleteTopicZnode",
    "InvalidZnode",
    "IsrChangeNotificationZnode",
    "LogDirEventNotificationZnode",
    "PartitionStateZnode",
    "PreferredReplicaElectionZnode",
    "ProducerIdBlockZnode",
    "ReassignPartitionsZnode",
    "TopicIdZnode",
    "TopicZnode",
    "encode_uuid",
]
