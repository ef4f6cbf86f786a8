"""Which handler serves which API."""

from __future__ import annotations

from strandline.broker.data_plane import DataPlane
from strandline.broker.handlers.configs import ConfigHandlers
from strandline.broker.handlers.controller_link import ControllerLink
from strandline.broker.handlers.group_offsets import OffsetHandlers
from strandline.broker.handlers.groups import GroupHandlers
from strandline.broker.handlers.inventory import InventoryHandler
from strandline.broker.handlers.orders import OrderHandlers
from strandline.broker.handlers.producer_ids import ProducerIdHandler
from strandline.broker.handlers.queries import QueryHandler
from strandline.broker.handlers.quotas import QuotaHandlers
from strandline.broker.handlers.users import describe_scram_credentials
from strandline.broker.network.request_channel import Handler
from strandline.protocol.api import APIS, ApiKey


def served_apis(
    *,
    data: DataPlane,
    queries: QueryHandler,
    inventory: InventoryHandler,
    configs: ConfigHandlers,
    groups: GroupHandlers,
    offsets: OffsetHandlers,
    quotas: QuotaHandlers,
    producer_ids: ProducerIdHandler,
    controller_link: ControllerLink,
    orders: OrderHandlers,
) -> dict[ApiKey, Handler]:
    """For the request channel: what has no row here is no API of a broker. How each is scheduled: `protocol/api`."""
    return {
        ApiKey.PRODUCE: data.produce.handle,
        ApiKey.FETCH: data.fetch.handle,
        ApiKey.DELETE_RECORDS: data.delete_records.handle,
        ApiKey.INIT_PRODUCER_ID: producer_ids.handle,
        ApiKey.API_VERSIONS: queries.api_versions,
        ApiKey.METADATA: queries.metadata,
        ApiKey.LIST_OFFSETS: queries.list_offsets,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: queries.offset_for_leader_epoch,
        ApiKey.ALTER_REPLICA_LOG_DIRS: inventory.alter_replica_log_dirs,
        ApiKey.DESCRIBE_LOG_DIRS: inventory.describe_log_dirs,
        ApiKey.DESCRIBE_CLUSTER: inventory.describe_cluster,
        ApiKey.DESCRIBE_PRODUCERS: inventory.describe_producers,
        ApiKey.DESCRIBE_CONFIGS: configs.describe,
        ApiKey.ALTER_CONFIGS: configs.alter,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: configs.alter_incrementally,
        ApiKey.FIND_COORDINATOR: groups.find_coordinator,
        ApiKey.JOIN_GROUP: groups.join_group,
        ApiKey.SYNC_GROUP: groups.sync_group,
        ApiKey.HEARTBEAT: groups.heartbeat,
        ApiKey.LEAVE_GROUP: groups.leave_group,
        ApiKey.DESCRIBE_GROUPS: groups.describe_groups,
        ApiKey.LIST_GROUPS: groups.list_groups,
        ApiKey.DELETE_GROUPS: groups.delete_groups,
        ApiKey.OFFSET_COMMIT: offsets.commit,
        ApiKey.OFFSET_FETCH: offsets.fetch,
        ApiKey.OFFSET_DELETE: offsets.delete,
        ApiKey.DESCRIBE_CLIENT_QUOTAS: quotas.describe,
        ApiKey.ALTER_CLIENT_QUOTAS: quotas.alter,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: describe_scram_credentials,
        **{api.key: controller_link.handle for api in APIS.values() if api.is_controllers},
        ApiKey.LEADER_AND_ISR: orders.leader_and_isr,
        ApiKey.STOP_REPLICA: orders.stop_replica,
        ApiKey.UPDATE_METADATA: orders.update_metadata,
    }
