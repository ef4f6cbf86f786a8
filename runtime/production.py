"""The production seams, put together: disk, sockets, threads, workers, clock, ZooKeeper. For the broker only."""

from __future__ import annotations

import gc

from strandline.runtime.clock import SystemWallClock
from strandline.runtime.config.broker import BrokerConfig
from strandline.runtime.coordination import Coordination
from strandline.runtime.disk_posix import PosixDisk
from strandline.runtime.environment import Environment
from strandline.runtime.logging import Logger
from strandline.runtime.network import REACH_TIMEOUT_S
from strandline.runtime.network_socket import SocketNetwork
from strandline.runtime.processes.blocking import ThreadBlocking
from strandline.runtime.processes.descriptors import descriptor_limit
from strandline.runtime.processes.workers import WorkerPool
from strandline.runtime.randomness import system_random
from strandline.runtime.zookeeper.client import KazooCoordination


def production_environment() -> Environment:
    return Environment(
        disk=PosixDisk(),
        network=SocketNetwork(reach_timeout_s=REACH_TIMEOUT_S),
        blocking=ThreadBlocking(),
        computing=WorkerPool(),
        wall_clock=SystemWallClock(),
        random=system_random,
        max_descriptors=descriptor_limit(),
    )


def production_coordination(config: BrokerConfig, log: Logger) -> Coordination:
    """Not connected yet. CoordinationError when `zookeeper.connect` names no server."""
    return KazooCoordination(
        config.zookeeper_connect,
        session_timeout_ms=config.zookeeper_session_timeout_ms,
        connection_timeout_ms=config.zookeeper_connection_timeout_ms or config.zookeeper_session_timeout_ms,
        log=log,
    )


def tune_garbage_collection() -> None:
    """After start-up: what lives now lives for ever, and collections become rare (the default thresholds cost a
    full collection every few thousand requests)."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
