"""Mutants of `storage/`: what becomes of files: what is cut, kept aside, refused, vouched for."""

from __future__ import annotations

from scenarios.mutants.mutant import Mutant, transcript

CHECKPOINTS = "../unit/storage/disk/test_checkpoints.py"
CHECKSUMS = "../unit/storage/recovery/test_damage_checksums.py"
COMPACTED_EPOCHS = "test_compacted_epochs.py"
COMPACTED_LOGS = "../unit/storage/cleaning/test_compacted_logs.py"
CRASHED_STARTS = "../unit/storage/crash/test_crash_points_start.py"
DAMAGED_TAILS = "../unit/storage/recovery/test_damage_tail.py"
DIRECTORIES = "../unit/storage/manager/test_log_directories.py"
ELIGIBLE_LEADERS = "test_eligible_leaders.py"
FLUSHES = "../unit/storage/log/test_flush.py"
FORBIDDEN_FILES = "../unit/storage/manager/test_forbidden_files.py"
FOUND_FOLDERS = "../unit/storage/manager/test_found_folders.py"
FULL_DISKS = "test_full_disks.py"
FULL_TRUNCATIONS = "../unit/storage/log/test_full_truncations.py"
INDEX_BOUNDS = "../unit/storage/segments/test_index_bounds.py"
LEFTOVERS = "../unit/storage/recovery/test_interrupted_changes.py"
LEADER_EPOCHS = "../unit/storage/log/test_leader_epochs.py"
LOG_HEADS = "test_log_heads.py"
LOG_MANAGER = "../unit/storage/manager/test_log_manager.py"
MISSING_BOUNDS = "../unit/storage/recovery/test_missing_bounds.py"
MOVED_LOGS = "../unit/storage/manager/test_moved_logs.py"
ORDERLY_STOPS = "../unit/storage/manager/test_orderly_stops.py"
RECOVERY = "../unit/storage/recovery/test_recovery.py"
SNAPSHOTS = "../unit/storage/producers/test_snapshots.py"
TAKEN_NAMES = "../unit/storage/log/test_taken_names.py"
TOPIC_IDS = "../unit/storage/recovery/test_topic_ids.py"
UNSERVED = "../unit/storage/segments/test_unserved.py"
VERDICTS = "../unit/storage/recovery/test_verdicts.py"
MUTANTS = [
    Mutant(
        "a full disk takes its directory offline",
        "storage/disk/directory_health.py",
        "        if is_full(cause) and not at_start:\n",
        "        if at_start and not at_start:\n",
        (FULL_DISKS, "test_a_leader_that_is_full"),
    ),
    Mutant(
        "the folder of a deleted log excuses that a later one of its name is gone",
        "storage/manager/log_manager.py",
        "            self.removals.disown(self._disk, tp, directory.path)",
        "",
        (LOG_MANAGER, "test_a_folder_that_waits"),
    ),
    Mutant(
        "a log that was moved leaves its log start behind",
        "storage/manager/moved_logs.py",
        "            if raise_log_start(log, start, high_watermarks[tp]):\n",
        "            if start < 0:\n",
        (LOG_HEADS, "test_a_log_that_was_moved"),
    ),
    Mutant(
        "another directory's line of a past life hides what a log has",
        "storage/manager/moved_logs.py",
        "tp in own.get(owners[tp], ())",
        "owners[tp] is former",
        (MOVED_LOGS, "test_of_a_log_that_its_own"),
    ),
    Mutant(
        "a log start beyond a moved log's end hides all of it",
        "storage/manager/moved_logs.py",
        " or start > log.log_end_offset:\n",
        ":\n                continue\n            if (start := min(start, log.log_end_offset)) < 0:\n",
        (MOVED_LOGS, "test_a_log_start_goes_along"),
    ),
    Mutant(
        "a cut writes what an index lacks",
        "storage/segments/indexes.py",
        "            self._shorten(index)\n",
        "            self.flush()\n",
        (FULL_TRUNCATIONS, "test_a_truncation_is_done"),
    ),
    Mutant(
        "a log that begins anew without room for its file is refused as if nothing was dropped",
        "storage/log/log.py",
        "            if self.failure is not None:\n                raise failure from error",
        "            if True:\n                raise failure from error",
        (FULL_TRUNCATIONS, "test_a_truncation_is_done"),
    ),
    Mutant(
        "an fsync without room counts as a full disk",
        "storage/disk/directory_health.py",
        "in _FULL and not isinstance(error, SyncFailed)\n",
        "in _FULL\n",
        (FULL_DISKS, "test_an_fsync_that_says"),
    ),
    Mutant(
        "a start goes on without what it could not write",
        "storage/manager/log_directories.py",
        "        self.each_online(what, act, only, at_start=True)\n",
        "        self.each_online(what, act)\n",
        (CRASHED_STARTS, "test_a_start_on_a_full_disk"),
    ),
    Mutant(
        "damage that segments follow is the end of a log that was killed",
        "storage/recovery/verdicts.py",
        "    if fault is Fault.TAIL and origin is",
        "    if fault in (Fault.TAIL, Fault.INSIDE) and origin is",
        (RECOVERY, "test_a_fault_in_a_sealed_segment"),
    ),
    Mutant(
        "what an earlier life left goes before it is sure that the log is not refused",
        "storage/recovery/recovery.py",
        "    left = find_leftovers(context, folder, entries)\n",
        "    (left := find_leftovers(context, folder, entries)).resolve(context, folder)\n",
        (LEFTOVERS, "test_a_log_that_is_refused_keeps"),
    ),
    Mutant(
        "a producer snapshot that is not understood is removed",
        "storage/producers/snapshots.py",
        "        if self._is_of_another_version(path):\n",
        "        if not path:\n",
        (SNAPSHOTS, "test_snapshots_of_another_version"),
    ),
    Mutant(
        "a compaction removes whatever is called like a leftover",
        "storage/cleaning/output.py",
        "for name in left if is_leftover(name)]",
        "for name in left]",
        (COMPACTED_LOGS, "test_a_cleaning_removes_its_own"),
    ),
    Mutant(
        "of two lines for one log the last one counts",
        "storage/disk/checkpoints.py",
        "            offset = min(offset, offsets[tp])\n",
        "",
        (CHECKPOINTS, "test_a_damaged_line"),
    ),
    Mutant(
        "damage that whole batches follow is a torn tail",
        "storage/recovery/recovery.py",
        " and not found.is_followed\n",
        "\n",
        (DAMAGED_TAILS, "test_bytes_behind_the_last_batch"),
    ),
    Mutant(
        "a file of epochs is believed against the batches",
        "storage/recovery/recovery.py",
        "    disbelieve(epochs, segments[:first], scanned)\n",
        "",
        (RECOVERY, "test_a_wrong_epoch_file"),
    ),
    Mutant(
        "a log that was emptied forgets its last epoch",
        "storage/log/leader_epochs.py",
        "max(log_end_offset, log_start_offset + 1)",
        "log_end_offset",
        (LEADER_EPOCHS, "test_a_log_that_was_emptied"),
    ),
    Mutant(
        "epochs that are not understood are replaced",
        "storage/recovery/stored_epochs.py",
        "            put_aside(context.disk, path)\n",
        "            pass\n",
        (CHECKSUMS, "test_the_epochs_of_an_empty_log_are_kept"),
    ),
    Mutant(
        "a log that begins with a segment is left out of the log starts",
        "storage/manager/log_directory.py",
        "for log, start in starts.items() if start > 0}\n",
        "for log, start in starts.items() if start > log.segments.holding(0).base_offset}\n",
        (LOG_HEADS, "test_what_was_answered_as_deleted"),
    ),
    Mutant(
        "a full index is noticed by the next wave only",
        "storage/segments/segment.py",
        "        return left > 1\n",
        "        return True\n",
        (INDEX_BOUNDS, "test_one_wave_"),
    ),
    Mutant(
        "a segment with wider gaps in its index than its topic asks for takes more batches",
        "storage/segments/roll.py",
        "segment.indexes.room <= 0 or segment.index_interval_bytes > config.index_interval_bytes",
        "segment.indexes.room <= 0",
        (INDEX_BOUNDS, "test_a_log_that_was_loaded"),
    ),
    Mutant(
        "a Kafka is told to recover nothing, whatever lies in the directory",
        "storage/manager/orderly_stops.py",
        "    for name in (CLEAN_MARKER, STATE) if state.is_for_all else (STATE,):\n",
        "    for name in (CLEAN_MARKER, STATE):\n",
        (ORDERLY_STOPS, "test_nobody_speaks_to_a_kafka"),
    ),
    Mutant(
        "an orderly stop is believed although a Kafka took its marker",
        "storage/manager/orderly_stops.py",
        "    if state is None or state.is_for_all or listed",
        "    if state is None or listed",
        (ORDERLY_STOPS, "test_a_log_that_a_kafka_had"),
    ),
    Mutant(
        "a Kafka that was killed is not noticed by its indexes",
        "storage/recovery/foreign.py",
        " or (known.listed is None and bears_kafkas_hand(disk, folder, entries))\n",
        "\n",
        (ORDERLY_STOPS, "test_a_log_that_a_kafka_had"),
    ),
    Mutant(
        "messages of old formats are damage",
        "storage/segments/scan.py",
        "    message = old_message(file, position, end)\n",
        "    message = None\n",
        (UNSERVED, "test_where_no_kafka_was_noticed"),
    ),
    Mutant(
        "what a Kafka left before its last segment is cut",
        "storage/recovery/verdicts.py",
        "        if fault is not Fault.TAIL or is_clean:\n",
        "        if fault is Fault.HOLE or is_clean:\n",
        (VERDICTS, "test_a_sealed_segment_of_a_kafka"),
    ),
    Mutant(
        "whole batches of a Kafka that contradict each other are damage",
        "storage/recovery/foreign.py",
        "    why = found.contradiction\n",
        '    why = ""\n',
        (VERDICTS, "test_whole_batches_of_a_kafka"),
    ),
    Mutant(
        "an empty segment is no trace of a Kafka's cleaner",
        "storage/recovery/segment_joins.py",
        "compacted_below=max([known.compacted_below, *cleaned])",
        "compacted_below=known.compacted_below",
        (VERDICTS, "test_a_cleaning_that_was_interrupted"),
    ),
    Mutant(
        "a swap replaces what it says",
        "storage/recovery/interrupted_changes.py",
        "    if last is None or not sources:\n",
        "    if last or not sources:\n",
        (LEFTOVERS, "test_a_swap_whose_last_offset"),
    ),
    Mutant(
        "a log that stands in no checkpoint is ours",
        "storage/manager/log_directory.py",
        " else Origin.OURS if has_bounds else Origin.UNKNOWN\n",
        " else Origin.OURS; has_bounds = True\n",
        (VERDICTS, "test_a_folder_that_stands_in_no_checkpoint"),
    ),
    Mutant(
        "epochs of a compacted log begin where its batches let them",
        "storage/recovery/recovery.py",
        "epochs.learn(epoch, least, most, noted)",
        "epochs.assign(epoch, least)",
        (COMPACTED_EPOCHS, "test_a_follower_behind"),
    ),
    Mutant(
        "checkpoints that name a log which is gone tell of no loss",
        "storage/manager/losses.py",
        ", **directory.stored[RECOVERY_POINTS], **directory.stored[HIGH_WATERMARKS]}\n",
        "}\n",
        (ELIGIBLE_LEADERS, "test_a_log_whose_folder"),
    ),
    Mutant(
        "a log directory that is gone is not missed",
        "storage/manager/log_directories.py",
        "        return len(self._missed) > self._unopened\n",
        "        return False\n",
        (ELIGIBLE_LEADERS, "test_a_directory_that_left"),
    ),
    Mutant(
        "a log with a remote tier is loaded",
        "storage/recovery/foreign.py",
        "    if is_tiered:\n",
        "    if False:\n",
        (UNSERVED, "test_checkpoints_of_a_log_with_a_remote_tier"),
    ),
    Mutant(
        "what is in the way of a file takes the directory offline",
        "storage/disk/log_health.py",
        " and not is_own:",
        ":",
        (FOUND_FOLDERS, "test_what_is_in_the_way"),
    ),
    Mutant(
        "what somebody put where a log is being created goes with the attempts",
        "storage/manager/partition_folders.py",
        "        if was_begun and all(map(_is_of_an_attempt, entries)):\n",
        "        if was_begun:\n",
        ("../unit/storage/manager/test_new_logs_without_room.py", "test_what_somebody_put_where"),
    ),
    Mutant(
        "what a refused log had is not missed with its bounds",
        "storage/manager/losses.py",
        "    unproven = len(directory.refused) + sum(",
        "    unproven = sum(",
        (MISSING_BOUNDS, "test_a_loss_that_missing_bounds"),
    ),
    Mutant(
        "a log ends where a file's name says, whatever that is",
        "storage/recovery/interrupted_changes.py",
        "int(parts[1]) > MAX_OFFSET",
        "False",
        (LEFTOVERS, "test_a_file_named_by_an_offset"),
    ),
    Mutant(
        "a log begins where a checkpoint says, whatever that is",
        "storage/disk/checkpoints.py",
        "        if not are_numbers or int(parts[2]) > MAX_OFFSET:\n",
        "        if not are_numbers:\n",
        (CHECKPOINTS, "test_a_damaged_line"),
    ),
    Mutant(
        "a swap that counts for nothing goes, whatever else there is",
        "storage/recovery/interrupted_changes.py",
        "            _refuse_an_only_copy(context, folder, name, paths)\n",
        "            pass\n",
        (LEFTOVERS, "test_a_swap_that_counts_for_nothing"),
    ),
    Mutant(
        "two directories may have one id",
        "storage/manager/log_directories.py",
        "            self._refuse_copies()\n",
        "",
        (DIRECTORIES, "test_a_copied_meta_properties"),
    ),
    Mutant(
        "a topic id of zeros is one",
        "storage/recovery/topic_ids.py",
        " != NO_TOPIC_ID:",
        " is not None:",
        (TOPIC_IDS, "test_a_log_whose_id_cannot_be_read"),
    ),
    Mutant(
        "any file that is called a .log hides that a Kafka was here",
        "storage/recovery/foreign.py",
        "entry.name.endswith(LOG_SUFFIX) and _SEGMENT.fullmatch(entry.name)",
        "entry.name.endswith(LOG_SUFFIX)",
        (ORDERLY_STOPS, "test_a_log_that_a_kafka_had"),
    ),
    Mutant(
        "a file without permission takes the directory offline",
        "storage/disk/directory_health.py",
        ", errno.EACCES, errno.EPERM})",
        "})",
        (FORBIDDEN_FILES, "test_what_may_not_be_used_any_more"),
    ),
    Mutant(
        "what is to be checked is not opened for its log first",
        "storage/manager/loading.py",
        "            for task in tasks:  #",
        "            for task in ():  #",
        (FORBIDDEN_FILES, "test_what_may_not_be_used_has"),
    ),
    Mutant(
        "a pipe with the name of a leftover is removed",
        "storage/recovery/interrupted_changes.py",
        "for entry in entries if entry.is_file}",
        "for entry in entries if not entry.is_dir}",
        (FOUND_FOLDERS, "test_what_only_has_the_name"),
    ),
    Mutant(
        "a folder in the way of a rename takes the directory offline",
        "storage/disk/directory_health.py",
        "frozenset({errno.EISDIR, ",
        "frozenset({",
        (TAKEN_NAMES, "test_a_folder_in_the_way"),
    ),
    Mutant(
        "a log that ends below its start goes without a copy",
        "storage/recovery/damage.py",
        "Verdict.LOSE if is_loss else Verdict.DROP",
        "Verdict.DROP",
        (VERDICTS, "test_no_whole_batch_goes"),
    ),
    Mutant(
        "the list of an orderly stop that is gone is not missed",
        "storage/manager/orderly_stops.py",
        "    if state is None or state.is_for_all or listed is None or _is",
        "    listed = listed or {}\n    if state is None or state.is_for_all or _is",
        (ORDERLY_STOPS, "test_a_log_that_a_kafka_had"),
    ),
    Mutant(
        "a sealed segment that nobody could follow is vouched for",
        "storage/recovery/foreign.py",
        "            if place < unchecked or known",
        "            if known",
        (ORDERLY_STOPS, "test_a_sealed_segment_that"),
    ),
    Mutant(
        "a Kafka that was killed between two indexes is not noticed",
        "storage/recovery/foreign.py",
        "for index in (OffsetIndex, TimeIndex):",
        "for index in (OffsetIndex,):",
        (ORDERLY_STOPS, "test_a_log_that_a_kafka_had"),
    ),
    Mutant(
        "a log of the orderly stop may wait for its removal",
        "storage/manager/losses.py",
        "        if tp in directory.last_stop.listed or not",
        "        if not",
        (ORDERLY_STOPS, "test_a_log_of_the_stop"),
    ),
    Mutant(
        "of a log that lies twice one folder forgets its checkpoints",
        "storage/manager/log_manager.py",
        "[owner.path for owner in owners]), owners)",
        "[owner.path for owner in owners]), owners[:1])",
        (ORDERLY_STOPS, "test_a_log_that_lies_in_two"),
    ),
    Mutant(
        "a checkpoint that ends inside a line is whole",
        "storage/disk/checkpoints.py",
        '    return offsets, content.endswith(b"\\n") and not faults\n',
        "    return offsets, not faults\n",
        (CHECKPOINTS, "test_bounds_are_known"),
    ),
    Mutant(
        "checkpoints of other logs bound one that they do not name",
        "storage/manager/log_directory.py",
        "bounds_known=self.bounds_known and has_bounds",
        "bounds_known=self.bounds_known",
        (VERDICTS, "test_the_torn_tail"),
    ),
    Mutant(
        "the trace of a cleaner behind a hole is not looked for",
        "storage/recovery/segment_joins.py",
        "not (_has_gaps(segment) or _has_gaps(following))",
        "not _has_gaps(segment)",
        (VERDICTS, "test_a_hole_in_a_kafkas_log_with"),
    ),
    Mutant(
        "the orderly stop of an unsynced directory is believed",
        "storage/manager/log_directory.py",
        "        self.last_stop = LastStop()\n\n    def mark_unsynced",
        "\n    def mark_unsynced",
        (DIRECTORIES, "test_a_directory_that_cannot_note"),
    ),
    Mutant(
        "what a killed broker had sealed is not synced before the next roll",
        "storage/log/flush.py",
        "has_sealed = self.recovery_point < self._segments.active.base_offset",
        "has_sealed = False",
        (FLUSHES, "test_a_segment_that_a_killed_life_had_sealed_is_due_when_the_log_is_loaded"),
    ),
    Mutant(
        "a batch that is sent again is appended again",
        "storage/producers/states.py",
        "                return batch\n",
        "                return None\n",
        transcript("r17_answer_dies_with_the_leader"),
    ),
    Mutant(
        "a cleaning goes beyond what is committed",
        "storage/cleaning/takeover.py",
        "            if following.base_offset > end_offset:\n",
        "            if following.base_offset < 0:\n",
        transcript("r19_compaction"),
    ),
    Mutant(
        "segments are put aside before what replaces them has its name",
        "storage/cleaning/takeover.py",
        "            _rename(log, replaced[0].path, CLEANED_SUFFIX, SWAP_SUFFIX)\n"
        "            log.segments.put_aside(replaced, log.config.file_delete_delay_ms)\n",
        "            log.segments.put_aside(replaced, log.config.file_delete_delay_ms)\n"
        "            _rename(log, replaced[0].path, CLEANED_SUFFIX, SWAP_SUFFIX)\n",
        transcript("r19_killed_at_each_rename"),
    ),
    Mutant(
        "an entry of an index is believed where epochs are looked at",
        "storage/recovery/epoch_check.py",
        "    return any(header.last_offset <= last_offset for _, header in islice(walk, 1))\n",
        "    return True or walk\n",
        ("../unit/storage/segments/test_damage_indexes.py", "test_nor_does_it_where_leader_epochs_begin"),
    ),
    Mutant(
        "retention looks at a log whose disk has failed",
        "storage/log/log_start.py",
        "    log.health.check()\n    config = log.config\n",
        "    config = log.config\n",
        ("../unit/broker/upkeep/test_retention_checks.py", "test_a_disk_that_failed_with_another_log"),
    ),
    Mutant(
        "what lies below the log start within a batch counts as damage",
        "storage/log/served_damage.py",
        "known.epoch_at(header.last_offset)",
        "known.epoch_at(header.base_offset)",
        ("../unit/broker/replication/test_stalled_followers.py", "test_a_log_that_begins_within_a_batch"),
    ),
]
