"""Whose a log directory is: what its `meta.properties` says, held against who wants it. Nothing is written here, so a
directory that is another's stays as it is."""

from __future__ import annotations

from strandline.runtime.disk import Disk, read_file
from strandline.storage.disk.properties import parse_properties
from strandline.storage.errors import InconsistentMetaProperties, LogDirUnusable

META_PROPERTIES = "meta.properties"
_MAX_BYTES = 2**20


def read_identity(disk: Disk, path: str, *, broker_id: int, cluster_id: str) -> dict[str, str]:
    """Of the directory at `path`; empty where it is no log directory yet. cluster_id: empty where nobody knows it.
    Blocking. InconsistentMetaProperties, LogDirUnusable; OSError from the disk."""
    file = f"{path}/{META_PROPERTIES}"
    if not disk.exists(file):
        return {}
    try:
        found = parse_properties(read_file(disk, file, max_bytes=_MAX_BYTES).decode())
    except ValueError as error:
        raise LogDirUnusable(path, f"{META_PROPERTIES} is unreadable ({error})") from error
    if (version := found.get("version", "0")) != "0":
        why = f"{META_PROPERTIES} is of version {version}, as of a Kafka without ZooKeeper; version 0 is understood"
        raise LogDirUnusable(path, why)
    if "broker.id" not in found:
        raise LogDirUnusable(path, f"{META_PROPERTIES} names no broker.id; write back what it said")
    if (said := found["broker.id"]) != str(broker_id):
        raise InconsistentMetaProperties(path, "broker.id", said, str(broker_id))
    if cluster_id and (said := found.get("cluster.id", cluster_id)) != cluster_id:
        raise InconsistentMetaProperties(path, "cluster.id", said, cluster_id)
    return found
