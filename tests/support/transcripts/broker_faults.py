"""Stimuli of brokers, of the network between them, and of ZooKeeper.

| stimulus | what happens |
|---|---|
| kill, stop, start B | SIGKILL, SIGTERM, a start on the same disk |
| power B | the machine loses power: nothing survives that was not synced |
| sync B | everything on its disk is synced |
| wipe B | it is down, and gets an empty disk |
| flip B m7 | one bit of this record flips on its disk; `epoch`: of its leader epoch, which no CRC covers |
| fill B, empty B | its disk has no room, and has it again |
| cut A-B, cut A>B, heal A-B, heal | nothing passes between two brokers, in both directions or one |
| isolate B | nothing passes between it and any other broker |
| mute B | what it says to clients is lost |
| expire B | ZooKeeper ends its session |
| disconnect B | it does not reach ZooKeeper; `unnoticed`: and its client does not know |
| deafen B | as if its client were stopped: what it says to ZooKeeper and hears from there waits |
| reconnect B | the end of either |
| lose isr, incarnation B, registration B | the next write of that is done, and its answer is lost |
| forget B | it gives its session up and comes with another one, while the old one lingers |
| hold B, release B | from when it wants to write the partition's state it is kept from it, until it is released |
| depose | an operator's hand deletes /controller |
| repeat StopReplica B life=1 | the last such order that came to it in that life, or in this one, is said again |
| rest 2 | so many seconds pass |
"""

from __future__ import annotations

from strandline.protocol.records.batch import scan
from strandline.protocol.znodes import CONTROLLER_PATH, BrokerIdZnode, BrokerIncarnationZnode
from strandline.storage.segments.segment import LOG_SUFFIX
from strandline.testkit.cluster import CLIENT, LOG_DIR, node_name
from support.transcripts.broker_stage import STATE_PATH, T0, BrokerStage
from support.transcripts.stage import Verb

Words = list[str]
Options = dict[str, str]
EPOCH_BYTE = 14
"""Of a batch: where no CRC covers it."""
ROOM_BYTES = 64 * 2**20


# --- brokers ----------------------------------------------------------------------------------------------------------


async def kill(stage: BrokerStage, words: Words, options: Options) -> None:
    for broker_id in stage.names.ids(words):
        stage.cluster.crash(broker_id)


async def stop(stage: BrokerStage, words: Words, options: Options) -> None:
    for broker_id in stage.names.ids(words):
        await stage.cluster.stop(broker_id)


async def power(stage: BrokerStage, words: Words, options: Options) -> None:
    for broker_id in stage.names.ids(words):
        if stage.cluster.nodes[broker_id].is_up:
            stage.cluster.lose_power(broker_id)
        else:
            stage.cluster.lose_power_while_down(broker_id)


async def start(stage: BrokerStage, words: Words, options: Options) -> None:
    for broker_id in stage.names.ids(words):
        await stage.cluster.start_broker(broker_id)
        stage.orders.watch(broker_id)


async def sync(stage: BrokerStage, words: Words, options: Options) -> None:
    for broker_id in stage.names.ids(words):
        stage.cluster.nodes[broker_id].disk.sync_everything()


async def wipe(stage: BrokerStage, words: Words, options: Options) -> None:
    for broker_id in stage.names.ids(words):
        stage.cluster.replace_disk(broker_id)


async def flip(stage: BrokerStage, words: Words, options: Options) -> None:
    letter, value, *part = words
    disk = stage.cluster.nodes[stage.names.id_of[letter]].disk
    path = f"{LOG_DIR}/{T0}/{0:020d}{LOG_SUFFIX}"
    data = bytearray(disk.read(path))
    at = data.index(value.encode())
    if part == ["epoch"]:
        at = max(start for start, _ in scan(memoryview(bytes(data))) if start < at) + EPOCH_BYTE
    data[at] ^= 0x20
    disk.write(path, bytes(data))


async def fill(stage: BrokerStage, words: Words, options: Options) -> None:
    for broker_id in stage.names.ids(words):
        disk = stage.cluster.nodes[broker_id].disk
        disk.capacity_bytes -= disk.free_bytes


async def empty(stage: BrokerStage, words: Words, options: Options) -> None:
    for broker_id in stage.names.ids(words):
        stage.cluster.nodes[broker_id].disk.capacity_bytes += ROOM_BYTES


# --- the network ------------------------------------------------------------------------------------------------------


async def cut(stage: BrokerStage, words: Words, options: Options) -> None:
    for link in words:
        one, way, other = link
        stage.cluster.cut(*stage.names.ids((one, other)))
        if way == "-":
            stage.cluster.cut(*stage.names.ids((other, one)))


async def heal(stage: BrokerStage, words: Words, options: Options) -> None:
    if not words:
        stage.cluster.network.heal()
    for link in words:
        stage.cluster.heal(*stage.names.ids((link[0], link[2])))


async def isolate(stage: BrokerStage, words: Words, options: Options) -> None:
    for broker_id in stage.names.ids(words):
        for other in stage.cluster.nodes:
            if other != broker_id:
                stage.cluster.cut_both(broker_id, other)


async def mute(stage: BrokerStage, words: Words, options: Options) -> None:
    for broker_id in stage.names.ids(words):
        stage.cluster.network.cut(node_name(broker_id), CLIENT)


# --- ZooKeeper --------------------------------------------------------------------------------------------------------


async def expire(stage: BrokerStage, words: Words, options: Options) -> None:
    for broker_id in stage.names.ids(words):
        stage.cluster.expire_session(broker_id)


async def disconnect(stage: BrokerStage, words: Words, options: Options) -> None:
    letter, *how = words
    stage.cluster.cut_from_zookeeper(stage.names.id_of[letter], noticed=how != ["unnoticed"])


async def deafen(stage: BrokerStage, words: Words, options: Options) -> None:
    for broker_id in stage.names.ids(words):
        stage.cluster.zookeeper.hold(stage.cluster.coordination(broker_id).client)


async def reconnect(stage: BrokerStage, words: Words, options: Options) -> None:
    for broker_id in stage.names.ids(words):
        stage.cluster.heal_zookeeper(broker_id)


async def lose(stage: BrokerStage, words: Words, options: Options) -> None:
    what, *letters = words
    brokers = stage.names.ids(letters)
    paths = {"incarnation": BrokerIncarnationZnode.path, "registration": BrokerIdZnode.path}
    stage.lose_answer(" ".join(words), STATE_PATH if what == "isr" else paths[what](*brokers))


async def forget(stage: BrokerStage, words: Words, options: Options) -> None:
    for broker_id in stage.names.ids(words):
        stage.cluster.zookeeper.forget_session(stage.cluster.coordination(broker_id).client)


async def hold(stage: BrokerStage, words: Words, options: Options) -> None:
    for letter in words:
        stage.hold(letter)


async def release(stage: BrokerStage, words: Words, options: Options) -> None:
    for letter in words:
        stage.release(letter)


async def depose(stage: BrokerStage, words: Words, options: Options) -> None:
    operator = stage.cluster.zookeeper.client()
    await operator.start()
    await operator.delete(CONTROLLER_PATH)
    await operator.close()


async def repeat(stage: BrokerStage, words: Words, options: Options) -> None:
    kind, letter = words
    await stage.orders.repeat(stage.names.id_of[letter], kind, int(options.get("life", 0)) or None)


async def rest(stage: BrokerStage, words: Words, options: Options) -> None:
    await stage.cluster.rest(float(words[0]))


VERBS: dict[str, Verb] = {
    verb.__name__: verb
    for verb in (
        *(kill, stop, power, start, sync, wipe, flip, fill, empty),
        *(cut, heal, isolate, mute),
        *(expire, disconnect, deafen, reconnect, lose, forget, hold, release, depose, repeat, rest),
    )
}
