"""The scripted regressions can fail: one line of the broker is broken at a time, and one of them must notice.

Each mutant is a replacement of text that stands exactly once, in a copy of its package; the other packages are linked.
The tests named with it run against that copy in a process of their own. The same tests pass against an unchanged copy,
so what fails is the mutant and not the copying.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
PACKAGES = sorted(link.name for link in (ROOT / "src" / "strandline").iterdir() if link.is_symlink())
TIMEOUT_S = 600


class Mutant(NamedTuple):
    """`killed_by`: file and beginning of the names of the tests of which one must fail."""

    name: str
    file: str
    before: str
    after: str
    killed_by: tuple[str, str]


ON_BROKERS = "test_regressions_on_brokers.py"
OF_REPLICATION = "test_regressions_of_replication.py"
OF_CUTS = "test_cuts.py"
LOG_HEADS = "test_log_heads.py"
FULL_DISKS = "test_full_disks.py"
CONFIGURATIONS = "test_configurations.py"
COMPACTED_EPOCHS = "test_compacted_epochs.py"
UNSERVED = "../unit/storage/test_unserved.py"
INDEX_BOUNDS = "../unit/storage/test_index_bounds.py"
OF_ORDERLY_STOPS = "../unit/storage/test_orderly_stops.py"
REFUSED_LOGS = "test_refused_logs.py"
VERDICTS = "../unit/storage/test_verdicts.py"
REASONS = "test_reasons.py"
ELIGIBLE_LEADERS = "test_eligible_leaders.py"
ORDERLY_STOPS = "test_orderly_stops.py"
STOPS_DURING_START = "test_stops_during_start.py"
RECOVERY = "../unit/storage/test_recovery.py"
CRASHED_STARTS = "../unit/storage/crash/test_crash_points_start.py"
LIVES_IN_BETWEEN = "test_lives_in_between.py"
RECOVER = "test_recover.py"
MUTANTS = [
    Mutant(
        "truncate to the high watermark",
        "broker/partition.py",
        "        self._drop_leadership(state.leader, state.leader_epoch)\n",
        "        self._drop_leadership(state.leader, state.leader_epoch); "
        "self.truncate_to(self._follower_high_watermark)\n",
        (ON_BROKERS, "test_r1_"),
    ),
    Mutant(
        "no check of the epoch's start when the ISR grows",
        "broker/leadership.py",
        "            and progress.log_end_offset >= self.epoch_start_offset\n",
        "",
        (OF_REPLICATION, "test_r5_"),
    ),
    Mutant(
        "who joins below the minimum is measured by a high watermark that stands still",
        "broker/leadership.py",
        "            and progress.log_end_offset >= self.quorum_offset\n",
        "",
        (OF_REPLICATION, "test_below_the_minimum_"),
    ),
    Mutant(
        "the high watermark over the committed ISR only",
        "broker/leadership.py",
        "        return frozenset(self.isr) | frozenset(proposed)\n",
        "        return frozenset(self.isr)\n",
        (OF_REPLICATION, "test_r6_"),
    ),
    Mutant(
        "a member of the ISR that is no replica counts",
        "broker/leadership.py",
        "        self.isr = tuple(member for member in members if member in self.replicas)\n",
        "        self.isr = members\n",
        ("../unit/broker/test_isr_updates.py", "test_a_member_that_is_no_replica"),
    ),
    Mutant(
        "version -1 in the compare-and-set",
        "broker/isr_updates.py",
        "state.encode(), proposal.zk_version)]",
        "state.encode(), -1)]",
        (ON_BROKERS, "test_r12_a_repeated_write"),
    ),
    Mutant(
        "acknowledged at the append",
        "broker/produce.py",
        "        if operation.request.message.acks == ACKS_ALL:\n",
        "        if operation.request.message.acks == 2:\n",
        (OF_REPLICATION, "test_r6_"),
    ),
    # Beyond the five: what the other regressions are there for.
    Mutant(
        "brokers wait for TCP after a cut",
        "runtime/network.py",
        "REACH_TIMEOUT_S = 2.0\n",
        "REACH_TIMEOUT_S = 60.0\n",
        (OF_CUTS, "test_acks_flow_at_once"),
    ),
    Mutant(
        "a full disk takes its directory offline",
        "storage/directory_health.py",
        "        if is_full(cause) and not at_start:\n",
        "        if at_start and not at_start:\n",
        (FULL_DISKS, "test_a_leader_that_is_full"),
    ),
    Mutant(
        "who has no room for a new log goes on being its leader",
        "controller/broker_changes.py",
        "UNABLE = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.BROKER_NOT_AVAILABLE)\n",
        "UNABLE = (ErrorCode.KAFKA_STORAGE_ERROR,)\n",
        (FULL_DISKS, "test_a_new_topic_is_led"),
    ),
    Mutant(
        "a topic counts as created before a refusal of its leader is handled",
        "controller/requests.py",
        "                if standing.leader_epochs == before.leader_epochs and self._are_told(topics, before):\n",
        "                if standing:\n",
        (FULL_DISKS, "test_a_new_topic_without_room"),
    ),
    Mutant(
        "an fsync without room counts as a full disk",
        "storage/directory_health.py",
        " and not isinstance(error, SyncFailed)\n",
        "\n",
        (FULL_DISKS, "test_an_fsync_that_says"),
    ),
    Mutant(
        "a start goes on without what it could not write",
        "storage/log_directories.py",
        "        self.each_online(what, act, at_start=True)\n",
        "        self.each_online(what, act)\n",
        (CRASHED_STARTS, "test_a_start_on_a_full_disk"),
    ),
    Mutant(
        "a start that is given up leaves the marker beside a loss",
        "broker/server.py",
        "            clean = clean and not self.log_manager.directories.is_loss_open\n",
        "",
        (STOPS_DURING_START, "test_a_start_given_up_on_an_old_backup"),
    ),
    Mutant(
        "damage that segments follow is the end of a log that was killed",
        "storage/verdicts.py",
        " or (fault is Fault.INSIDE and not power_failed)\n",
        "\n",
        (RECOVERY, "test_a_fault_in_a_sealed_segment"),
    ),
    Mutant(
        "a file of epochs is believed against the batches",
        "storage/recovery.py",
        "    disbelieve(epochs, segments[:first], scanned)\n",
        "",
        (RECOVERY, "test_a_wrong_epoch_file"),
    ),
    Mutant(
        "a follower tells a log start that is not on its disk",
        "broker/follower_fetch.py",
        "                partition.durable_log_start_offset,\n",
        "                log.log_start_offset,\n",
        (LOG_HEADS, "test_nothing_is_answered_while_one_disk"),
    ),
    Mutant(
        "who joins may begin lower on its disk than what was answered",
        "broker/partition.py",
        "            and progress.log_start_offset >= self.durable_log_start_offset\n",
        "",
        (LOG_HEADS, "test_a_replica_that_was_away"),
    ),
    Mutant(
        "a leader answers a deletion that is not on its disk",
        "broker/partition.py",
        "        return min([self.log.durable_log_start_offset, *starts])\n",
        "        return min([self.log.log_start_offset, *starts])\n",
        (LOG_HEADS, "test_nothing_is_answered_while_one_disk"),
    ),
    Mutant(
        "a log that begins with a segment is left out of the log starts",
        "storage/log_directory.py",
        "for log, start in starts.items() if start > 0}\n",
        "for log, start in starts.items() if start > log.segments.holding(0).base_offset}\n",
        (LOG_HEADS, "test_what_was_answered_as_deleted"),
    ),
    Mutant(
        "fetches of an older epoch are served",
        "broker/fetch.py",
        "            if epoch < partition.leader_epoch:\n",
        "            if epoch < -1:\n",
        (OF_REPLICATION, "test_r4_"),
    ),
    Mutant(
        "answers to an older epoch are appended",
        "broker/follower.py",
        "                    or partition.leader_epoch != epoch\n",
        "",
        (OF_REPLICATION, "test_r22_an_answer_of_the_same_leader"),
    ),
    Mutant(
        "a diverged fetch counts as progress",
        "broker/fetch.py",
        "        if partition.diverging_epoch(wanted.last_fetched_epoch, wanted.fetch_offset) is not None:\n",
        "        if partition.failed:\n",
        (OF_REPLICATION, "test_a_fetch_that_is_answered_with_a_divergence"),
    ),
    Mutant(
        "no check of the incarnation",
        "broker/isr_updates.py",
        "        return [*checks, SetData",
        "        return [SetData",
        (ON_BROKERS, "test_r8_"),
    ),
    Mutant(
        "no check of the controller's epoch in its transactions",
        "controller/store.py",
        "multi_many([[self._fence, *one]",
        "multi_many([[Check(znodes.CONTROLLER_EPOCH_PATH, -1), *one]",
        (ON_BROKERS, "test_r9_a_controller_that_slept_cannot"),
    ),
    Mutant(
        "an ISR write that does not ask which topic it is",
        "broker/isr_updates.py",
        "Check(TopicIdZnode.path(topic, partition.topic_id), MATCH_ANY_VERSION)",
        'Check("/brokers/topics", MATCH_ANY_VERSION)',
        (ON_BROKERS, "test_a_late_isr_write_spares"),
    ),
    Mutant(
        "a configuration that cannot be read counts as none",
        "runtime/config_standing.py",
        "            found.append(Standing(None, str(error)))\n",
        "            found.append(Standing({}, str(error)))\n",
        (CONFIGURATIONS, "test_a_topic_keeps"),
    ),
    Mutant(
        "what ZooKeeper says of brokers is read too late",
        "broker/server.py",
        "            self.config = await self.config_changes.begin()\n",
        "            await self.config_changes.begin()\n",
        (CONFIGURATIONS, "test_what_zookeeper_says"),
    ),
    Mutant(
        "a word of brokers that cannot be read counts as none",
        "runtime/config_dynamic.py",
        "            undecided |= TOPIC_DEFAULTS\n",
        "",
        (CONFIGURATIONS, "test_what_zookeeper_says"),
    ),
    Mutant(
        "changes while a session was lost are missed",
        "broker/config_changes.py",
        "        if self._session_id != self._coordination.session_id:\n",
        "        if self._session_id == 0:\n",
        (CONFIGURATIONS, "test_a_change_that_was_announced"),
    ),
    Mutant(
        "a value that cannot be used counts as the default",
        "runtime/config_topic.py",
        "        safe |= _KEEP_ALL | _UNDECIDED.get(_BY_NAME[error.key].key.attribute, {})\n",
        "        assert error.key in _BY_NAME\n",
        (CONFIGURATIONS, "test_"),
    ),
    Mutant(
        "an unknown key discards the others",
        "runtime/config_topic.py",
        "            unknown.append(InvalidConfig(name, text, why))\n            continue\n",
        "            return {}, [InvalidConfig(name, text, why)], []\n",
        (CONFIGURATIONS, "test_a_topic_keeps"),
    ),
    Mutant(
        "a full index is noticed by the next wave only",
        "storage/segment.py",
        "        return room > 1\n",
        "        return True\n",
        (INDEX_BOUNDS, "test_one_wave_"),
    ),
    Mutant(
        "a segment with wider gaps in its index than its topic asks for takes more batches",
        "storage/roll.py",
        "segment.indexes.room <= 0 or segment.index_interval_bytes > config.index_interval_bytes",
        "segment.indexes.room <= 0",
        (INDEX_BOUNDS, "test_a_log_that_was_loaded"),
    ),
    Mutant(
        "a Kafka is told to recover nothing, whatever lies in the directory",
        "storage/orderly_stops.py",
        "    for name in (CLEAN_MARKER, OUR_MARKER) if for_kafka else (OUR_MARKER,):\n",
        "    for name in (CLEAN_MARKER, OUR_MARKER):\n",
        (OF_ORDERLY_STOPS, "test_nobody_speaks_to_a_kafka"),
    ),
    Mutant(
        "an orderly stop is believed although a Kafka took its marker",
        "storage/orderly_stops.py",
        "    if stop.is_for_all or listed is None",
        "    if listed is None",
        (OF_ORDERLY_STOPS, "test_a_log_that_a_kafka_had"),
    ),
    Mutant(
        "a Kafka that was killed is not noticed by its indexes",
        "storage/foreign.py",
        " or (known.listed is None and bears_kafkas_hand(disk, folder, entries))\n",
        "\n",
        (OF_ORDERLY_STOPS, "test_a_log_that_a_kafka_had"),
    ),
    Mutant(
        "messages of old formats are damage",
        "storage/scan.py",
        "    message = old_message(file, position, end)\n",
        "    message = None\n",
        (UNSERVED, "test_where_no_kafka_was_noticed"),
    ),
    Mutant(
        "what a Kafka left before its last segment is cut",
        "storage/verdicts.py",
        "        if fault is not Fault.TAIL or is_clean:\n",
        "        if fault is Fault.HOLE or is_clean:\n",
        (VERDICTS, "test_a_sealed_segment_of_a_kafka"),
    ),
    Mutant(
        "whole batches of a Kafka that contradict each other are damage",
        "storage/foreign.py",
        "    why = found.contradiction\n",
        '    why = ""\n',
        (VERDICTS, "test_whole_batches_of_a_kafka"),
    ),
    Mutant(
        "an empty segment is no trace of a Kafka's cleaner",
        "storage/recovery.py",
        "emptied_below(segments, known)))\n",
        "0))\n",
        (VERDICTS, "test_a_cleaning_that_was_interrupted"),
    ),
    Mutant(
        "a log that stands in no checkpoint is ours",
        "storage/log_directory.py",
        " else Origin.OURS if has_bounds else Origin.UNKNOWN\n",
        " else Origin.OURS; has_bounds = True\n",
        (VERDICTS, "test_a_folder_that_stands_in_no_checkpoint"),
    ),
    Mutant(
        "epochs of a compacted log begin where its batches let them",
        "storage/recovery.py",
        "epochs.learn(epoch, least, most, noted)",
        "epochs.assign(epoch, least)",
        (COMPACTED_EPOCHS, "test_a_follower_behind"),
    ),
    Mutant(
        "a replica whose log was put aside begins anew while it is eligible",
        "broker/role_changes.py",
        "        credited = (*state.isr, *state.eligible_leader_replicas)\n",
        "        credited = (*state.isr,)\n",
        ("test_stray_logs.py", "test_it_does_not_begin_anew"),
    ),
    Mutant(
        "a replica that was refused once counts as refused for good",
        "controller/broker_changes.py",
        "                if context.offline_replicas.pop(replica, None) is not None:\n",
        "                if False:\n",
        (REASONS, "test_a_replica_that_is_well_again"),
    ),
    Mutant(
        "nobody is told anew why a replica is refused",
        "controller/broker_changes.py",
        " and context.note_refusal(replica, why):\n",
        " and not context.note_refusal(replica, why):\n",
        (REASONS, "test_a_refused_follower"),
    ),
    Mutant(
        "who died before the controller heard that it joined stays in the ISR",
        "controller/broker_changes.py",
        "        changed = await self._term.settle(list(concerned))\n",
        "        changed = await self._term.settle(list(partitions))\n",
        ("test_fail_over.py", "test_who_dies_before_the_controller"),
    ),
    Mutant(
        "nobody is told what holds a deletion up",
        "controller/topic_changes.py",
        "        if unfinished != context.unfinished_deletions:\n",
        "        if False:\n",
        (REFUSED_LOGS, "test_a_deletion_waits"),
    ),
    Mutant(
        "a refused log counts as deleted",
        "broker/role_changes.py",
        "        if state.delete_partition and refused is not None and not isinstance(refused, StrayLog):\n",
        "        if state.delete_partition and isinstance(refused, str):\n",
        (REFUSED_LOGS, "test_a_deletion_waits"),
    ),
    Mutant(
        "a leader forgets whom it removed below the minimum",
        "broker/leadership.py",
        "IsrProposal(Proposal.SHRINK, isr, self.zk_version, eligible=self._eligible_beside(isr))",
        "IsrProposal(Proposal.SHRINK, isr, self.zk_version)",
        (ELIGIBLE_LEADERS, "test_who_left_"),
    ),
    Mutant(
        "a controller forgets whom it removed below the minimum",
        "controller/planner.py",
        "        elr=() if unclean else tuple(member for member in state.whole if member not in isr),\n",
        "        elr=(),\n",
        (ELIGIBLE_LEADERS, "test_who_left_"),
    ),
    Mutant(
        "a controlled shutdown rests on a broker that does not answer",
        "controller/requests.py",
        "        return [broker_id for broker_id in others if broker_id not in answered]\n",
        "        return [broker_id for broker_id in others if broker_id < 0]\n",
        (ORDERLY_STOPS, "test_who_stops_hands_over"),
    ),
    Mutant(
        "checkpoints that name a log which is gone tell of no loss",
        "storage/losses.py",
        "    named = {**directory.last_stop.listed, **directory.recovery_points, **directory.high_watermarks}\n",
        "    named = {**directory.last_stop.listed}\n",
        (ELIGIBLE_LEADERS, "test_a_log_whose_folder"),
    ),
    Mutant(
        "a log directory that is gone is not missed",
        "storage/log_directories.py",
        "        return len(self._missed) > self._unopened\n",
        "        return False\n",
        (ELIGIBLE_LEADERS, "test_a_directory_that_left"),
    ),
    Mutant(
        "a last member that lost its data is not marked",
        "broker/claims.py",
        "*(() if others else (broker_id,))]",
        "*()]",
        (ELIGIBLE_LEADERS, "test_a_loss_"),
    ),
    Mutant(
        "a log is deleted, says who could not look for it",
        "broker/role_changes.py",
        "        if state.delete_partition and refused is None and self._may_be_unread(topic_partition):\n",
        "        if False:\n",
        (REFUSED_LOGS, "test_a_deletion_waits_for_a_log_that_may_lie"),
    ),
    Mutant(
        "announcements are counted on when their folder is another one",
        "broker/config_changes.py",
        "        if folder != self._folder_czxid:\n",
        "        if False:\n",
        (CONFIGURATIONS, "test_announcements_count_after"),
    ),
    Mutant(
        "a recovery believes what an earlier life said",
        "controller/recovery.py",
        "[b for b in ends if living.get(b) != lives.get(b)]",
        "()",
        (LIVES_IN_BETWEEN, "test_a_recovery_"),
    ),
    Mutant(
        "a leader is not told of the epoch that a lossy broker wrote",
        "controller/term.py",
        "            if state.leader_epoch != self.context.states[tp].leader_epoch:\n"
        "                self.unannounced.setdefault(tp, False)\n",
        "",
        (LIVES_IN_BETWEEN, "test_a_leader_hears_"),
    ),
    Mutant(
        "an election breaks the chain of our terms",
        "controller/election.py",
        "    if follows_ours:  # it",
        "    if False:  # it",
        (LIVES_IN_BETWEEN, "test_eligible_replicas_"),
    ),
    Mutant(
        "a loss that was accepted waits for the death of whoever leads",
        "controller/elect_leaders.py",
        "if _needs_election(term, tp))",
        "if tp in context.states)",
        (RECOVER, "test_what_was_accepted_"),
    ),
    Mutant(
        "logs are loaded by the broker's limits",
        "broker/server.py",
        "configs.get(topic) or ",
        "",
        (CONFIGURATIONS, "test_a_log_is_loaded_by"),
    ),
    Mutant(
        "a log with a remote tier is loaded",
        "storage/foreign.py",
        "    if is_tiered:\n",
        "    if False:\n",
        (UNSERVED, "test_checkpoints_of_a_log_with_a_remote_tier"),
    ),
]


def copy_of_the_sources(folder: Path, mutant: Mutant | None) -> Path:
    """What PYTHONPATH has to begin with."""
    house = folder / "src" / "strandline"
    house.mkdir(parents=True)
    shutil.copy(ROOT / "src" / "strandline" / "__init__.py", house)
    changed = mutant.file.split("/")[0] if mutant is not None else ""
    for package in PACKAGES:
        if package != changed:
            (house / package).symlink_to(ROOT / package)
            continue
        shutil.copytree(ROOT / package, house / package, ignore=shutil.ignore_patterns("__pycache__"))
    if mutant is not None:
        path = house / mutant.file
        text = path.read_text()
        assert text.count(mutant.before) == 1, f"{mutant.name}: {mutant.before!r} must stand once in {mutant.file}"
        path.write_text(text.replace(mutant.before, mutant.after))
    return house.parent


def run(source_path: Path, tests: list[tuple[str, str]]) -> tuple[int, str]:
    """(pytest's exit code, the last of what it printed)."""
    selected = [f"{HERE / file}::{name}" for file, prefix in tests for name in names_of(file, prefix)]
    environment = {**os.environ, "PYTHONPATH": str(source_path), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "--tb=line", *selected]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
    return done.returncode, "\n".join(done.stdout.splitlines()[-60:])


def names_of(file: str, prefix: str) -> list[str]:
    found = re.findall(rf"^(?:async )?def ({re.escape(prefix)}\w*)", (HERE / file).read_text(), re.MULTILINE)
    assert found, f"{file} has no test {prefix}…"
    return found


def test_the_unchanged_copy_passes(tmp_path: Path) -> None:
    source_path = copy_of_the_sources(tmp_path, None)
    code, printed = run(source_path, list(dict.fromkeys(mutant.killed_by for mutant in MUTANTS)))
    assert code == 0, printed


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_regression_test_notices(mutant: Mutant, tmp_path: Path) -> None:
    code, printed = run(copy_of_the_sources(tmp_path, mutant), [mutant.killed_by])
    assert code == 1, f"no test failed (exit code {code}):\n{printed}"
    by_assertion = any(word in printed for word in ("AssertionError", "assert", "Broken(", "DID NOT RAISE"))
    assert by_assertion, f"it did not fail by its assertions:\n{printed}"
