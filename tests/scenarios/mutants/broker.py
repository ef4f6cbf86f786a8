"""Mutants of `broker/`: what replication rests on, in the code of brokers."""

from __future__ import annotations

from scenarios.mutants.mutant import Mutant

CONFIGURATIONS = "test_configurations.py"
DIALECTS = "../unit/broker/network/test_dialects.py"
ELIGIBLE_LEADERS = "test_eligible_leaders.py"
GATES = "../unit/broker/network/test_gates.py"
LEADERSHIP = "../unit/broker/replication/test_leadership.py"
LATER_EPOCHS = "test_later_epochs.py"
LOG_HEADS = "test_log_heads.py"
OF_REPLICATION = "test_regressions_of_replication.py"
ON_BROKERS = "test_regressions_on_brokers.py"
QUERIES = "../unit/broker/handlers/test_queries.py"
REMAINDERS = "../unit/broker/network/test_remainders.py"
REFUSED_LOGS = "test_refused_logs.py"
STOPPED_CONTROLLERS = "test_stopped_controllers.py"
STOPS_DURING_START = "test_stops_during_start.py"
WRONG_FOLDERS = "test_wrong_folders.py"
LOWERED_MINIMUM = "test_lowered_minimum.py"
MUTANTS = [
    Mutant(
        "a broker does not find out that its replica has moved",
        "broker/upkeep/departed_replicas.py",
        "                    self._wake.set()\n                    if state.leader",
        "                    if state.leader",
        (STOPPED_CONTROLLERS, "test_whoever_comes_next[reassign-CRASH]"),
    ),
    Mutant(
        "a new leadership does not know who is eligible",
        "broker/replication/partition.py",
        "            eligible=state.eligible_leader_replicas,\n",
        "",
        (LOWERED_MINIMUM, "test_a_new_leadership_knows"),
    ),
    Mutant(
        "a leader forgets who is eligible where its answer is lost",
        "broker/replication/isr_updates.py",
        "znode.stat.version, eligible=tuple(state.elr))",
        "znode.stat.version, eligible=())",
        (LOWERED_MINIMUM, "test_a_leader_knows_who_became"),
    ),
    Mutant(
        "whoever has a copy of the folder is a past life",
        "broker/membership/registration.py",
        "            if lock_id and lock_id == self.lock_id:\n",
        "            if lock_id.split()[:1] == self.lock_id.split()[:1]:\n",
        (WRONG_FOLDERS, "test_a_copy_of_a_running"),
    ),
    Mutant(
        "the cluster of a folder is not looked at",
        "storage/manager/identity.py",
        "    if cluster_id and (said",
        "    if not cluster_id and (said",
        (WRONG_FOLDERS, "test_a_broker_of_another_cluster"),
    ),
    Mutant(
        "truncate to the high watermark",
        "broker/replication/partition.py",
        "        self._drop_leadership(state.leader, state.leader_epoch)\n",
        "        self._drop_leadership(state.leader, state.leader_epoch); "
        "self.truncate_to(self._follower_high_watermark)\n",
        (ON_BROKERS, "test_r1_"),
    ),
    Mutant(
        "no check of the epoch's start when the ISR grows",
        "broker/replication/leadership.py",
        "            and progress.log_end_offset >= self.epoch_start_offset\n",
        "",
        (OF_REPLICATION, "test_r5_"),
    ),
    Mutant(
        "who joins below the minimum is measured by a high watermark that stands still",
        "broker/replication/leadership.py",
        "            and progress.log_end_offset >= self.quorum_offset\n",
        "",
        (OF_REPLICATION, "test_below_the_minimum_"),
    ),
    Mutant(
        "the high watermark over the committed ISR only",
        "broker/replication/leadership.py",
        "        return frozenset(self.isr) | frozenset(proposed)\n",
        "        return frozenset(self.isr)\n",
        (OF_REPLICATION, "test_r6_"),
    ),
    Mutant(
        "a member of the ISR that is no replica counts",
        "broker/replication/leadership.py",
        "        self.isr = tuple(member for member in members if member in self.replicas)\n",
        "        self.isr = members\n",
        ("../unit/broker/replication/test_isr_updates.py", "test_a_member_that_is_no_replica"),
    ),
    Mutant(
        "version -1 in the compare-and-set",
        "broker/replication/isr_updates.py",
        "state.encode(), proposal.zk_version)]",
        "state.encode(), -1)]",
        (ON_BROKERS, "test_r12_a_repeated_write"),
    ),
    Mutant(
        "acknowledged at the append",
        "broker/handlers/produce.py",
        "operation = ProduceOperation(request, deadline, message.acks == ACKS_ALL,",
        "operation = ProduceOperation(request, deadline, message.acks == 2,",
        (OF_REPLICATION, "test_r6_"),
    ),
    Mutant(
        "a start that is given up leaves the marker beside a loss",
        "broker/server.py",
        "            clean = clean and not self.log_manager.directories.is_loss_open\n",
        "",
        (STOPS_DURING_START, "test_a_start_given_up_on_an_old_backup"),
    ),
    Mutant(
        "a follower tells a log start that is not on its disk",
        "broker/replication/follower_fetch.py",
        "                partition.durable_log_start_offset,\n",
        "                log.log_start_offset,\n",
        (LOG_HEADS, "test_nothing_is_answered_while_one_disk"),
    ),
    Mutant(
        "who joins may begin lower on its disk than what was answered",
        "broker/replication/partition.py",
        "            and progress.log_start_offset >= self.durable_log_start_offset\n",
        "",
        (LOG_HEADS, "test_a_replica_that_was_away"),
    ),
    Mutant(
        "a leader answers a deletion that is not on its disk",
        "broker/replication/partition.py",
        "        return min([self.log.durable_log_start_offset, *starts])\n",
        "        return min([self.log.log_start_offset, *starts])\n",
        (LOG_HEADS, "test_nothing_is_answered_while_one_disk"),
    ),
    Mutant(
        "fetches of an older epoch are served",
        "broker/handlers/fetch_reads.py",
        "            if epoch < partition.leader_epoch:\n",
        "            if epoch < -1:\n",
        (OF_REPLICATION, "test_r4_"),
    ),
    Mutant(
        "answers to an older epoch are appended",
        "broker/replication/follower.py",
        "                    or partition.leader_epoch != epoch\n",
        "",
        (OF_REPLICATION, "test_r22_an_answer_of_the_same_leader"),
    ),
    Mutant(
        "a diverged fetch counts as progress",
        "broker/handlers/fetch.py",
        "        if partition.diverging_epoch(wanted.last_fetched_epoch, wanted.fetch_offset) is not None:\n",
        "        if partition.failed:\n",
        (OF_REPLICATION, "test_a_fetch_that_is_answered_with_a_divergence"),
    ),
    Mutant(
        "no check of the incarnation",
        "broker/replication/isr_updates.py",
        "        return [*checks, SetData",
        "        return [SetData",
        (ON_BROKERS, "test_r8_"),
    ),
    Mutant(
        "an ISR write that does not ask which topic it is",
        "broker/replication/isr_updates.py",
        "Check(TopicIdZnode.path(topic, partition.topic_id), MATCH_ANY_VERSION)",
        'Check("/brokers/topics", MATCH_ANY_VERSION)',
        (ON_BROKERS, "test_a_late_isr_write_spares"),
    ),
    Mutant(
        "what ZooKeeper says of brokers is read too late",
        "broker/admin/config_changes.py",
        "        self.config.value = await self.dynamic.read()\n",
        "        await self.dynamic.read()\n",
        (CONFIGURATIONS, "test_what_zookeeper_says"),
    ),
    Mutant(
        "changes while a session was lost are missed",
        "broker/admin/config_changes.py",
        "        if self._session_id != self._coordination.session_id:\n",
        "        if self._session_id == 0:\n",
        (CONFIGURATIONS, "test_a_change_that_was_announced"),
    ),
    Mutant(
        "a replica whose log was put aside begins anew while it is eligible",
        "broker/replication/role_changes.py",
        "        credited = (*state.isr, *state.eligible_leader_replicas)\n",
        "        credited = (*state.isr,)\n",
        ("test_stray_logs.py", "test_it_does_not_begin_anew"),
    ),
    Mutant(
        "a refused log counts as deleted",
        "broker/replication/role_changes.py",
        "        if state.delete_partition and refused is not None and not isinstance(refused, StrayLog):\n",
        "        if state.delete_partition and isinstance(refused, str):\n",
        (REFUSED_LOGS, "test_a_deletion_waits"),
    ),
    Mutant(
        "a leader forgets whom it removed below the minimum",
        "broker/replication/leadership.py",
        "IsrProposal(Proposal.SHRINK, isr, self.zk_version, eligible=self._eligible_beside(isr))",
        "IsrProposal(Proposal.SHRINK, isr, self.zk_version)",
        (ELIGIBLE_LEADERS, "test_who_left_"),
    ),
    Mutant(
        "a last member that lost its data is not marked",
        "protocol/znodes/cluster.py",
        "*(() if others else (broker_id,))]",
        "*()]",
        (ELIGIBLE_LEADERS, "test_a_loss_"),
    ),
    Mutant(
        "a log is deleted, says who could not look for it",
        "broker/replication/role_changes.py",
        "        if state.delete_partition and refused is None and self._may_be_unread(topic_partition):\n",
        "        if False:\n",
        (REFUSED_LOGS, "test_a_deletion_waits_for_a_log_that_may_lie"),
    ),
    Mutant(
        "announcements are counted on when their folder is another one",
        "broker/admin/config_changes.py",
        "        if folder != self._folder_czxid:\n",
        "        if False:\n",
        (CONFIGURATIONS, "test_announcements_count_after"),
    ),
    Mutant(
        "logs are loaded by the broker's limits",
        "broker/server.py",
        "configs.get(topic) or ",
        "",
        (CONFIGURATIONS, "test_a_log_is_loaded_by"),
    ),
    Mutant(
        "a log is named by no checkpoint before the next one is due",
        "broker/replication/role_changes.py",
        "            self._checkpoints.note_creation()\n",
        "",
        (ELIGIBLE_LEADERS, "test_a_log_whose_folder_is_gone"),
    ),
    Mutant(
        "announcements are removed as soon as they were looked at",
        "broker/admin/config_changes.py",
        "        old = trio.current_time() - KEPT_S\n",
        "        old = trio.current_time()\n",
        (CONFIGURATIONS, "test_announcements_go_"),
    ),
    Mutant(
        "a follower with a later epoch than its leader has it cut",
        "broker/replication/role_changes.py",
        "        elif state.leader_epoch < log.last_epoch:\n",
        "        elif state.leader == self._replicas.broker_id and state.leader_epoch < log.last_epoch:\n",
        (LATER_EPOCHS, "test_who_has_later_epochs"),
    ),
    Mutant(
        "a leader has a follower cut epochs that are yet to come",
        "broker/handlers/fetch_reads.py",
        " or (is_follower and read.wanted.last_fetched_epoch > epoch):\n",
        ":\n",
        ("../unit/broker/handlers/test_fetch.py", "test_a_follower_with_an_epoch"),
    ),
    Mutant(
        "a log that may lie in an unread directory is said to be none",
        "broker/handlers/queries.py",
        "tp in logs.refused or logs.directories.has_unread",
        "tp in logs.refused",
        (QUERIES, "test_a_log_that_may_lie"),
    ),
    Mutant(
        "a rejected joiner is waited for where its past life ended",
        "broker/replication/leadership.py",
        "            self.followers[broker_id].log_end_offset = UNKNOWN_OFFSET\n        self.proposal",
        "            pass\n        self.proposal",
        (LEADERSHIP, "test_a_rejected_joiner"),
    ),
    Mutant(
        "a handler sees the records of its request overwritten",
        "broker/network/request_reader.py",
        "                request.own_records()\n",
        "                pass\n",
        (REMAINDERS, "test_what_is_behind"),
    ),
    Mutant(
        "an answer leaves without saying how much is attached",
        "broker/network/dialects/native.py",
        '            force_setattr(part, "records_size", size)',
        "            pass",
        (DIALECTS, "test_records_stand_where"),
    ),
    Mutant(
        "a version that a dialect does not route reaches a handler",
        "broker/network/request_reader.py",
        "        if not lowest <= header.version <= highest:\n",
        "        if header.version < 0:\n",
        (DIALECTS, "test_versions_are_those"),
    ),
    Mutant(
        "a connection keeps the client id of its first request",
        "broker/network/request_reader.py",
        "        connection.context = context\n",
        "",
        (DIALECTS, "test_the_client_id_is"),
    ),
    Mutant(
        "what a gate makes of an answer is not what is sent",
        "broker/network/request.py",
        "                message, regions = hook(message, regions) or (message, regions)\n",
        "                hook(message, regions)\n",
        (GATES, "test_a_gate_may_refuse_some"),
    ),
    Mutant(
        "any key makes a broker",
        "broker/membership/broker_key.py",
        "    return bool(key) and hmac.compare_digest(told.encode(), key.encode())\n",
        "    return bool(key) and bool(told)\n",
        ("test_forged_brokers.py", "test_the_key_of_another_broker"),
    ),
    Mutant(
        "a broker asks another one as a client",
        "broker/replication/questions.py",
        "            broker_key=metadata.key_of(broker_id),\n",
        "",
        ("test_forged_brokers.py", "test_a_broker_that_asks_another_one"),
    ),
    Mutant(
        "a follower shows its leader the key of an earlier start",
        "broker/replication/follower.py",
        "            if before not in (None, leader):\n",
        "            if before is not None and (before.host_name, before.port) != (leader.host_name, leader.port):\n",
        ("../unit/broker/replication/test_follower.py", "test_a_poll_at_an_old_address_or"),
    ),
    Mutant(
        "who comes by the listener of brokers is one",
        "broker/network/acceptor.py",
        "(self.config.name, False, peer)",
        "(self.config.name, self.config.is_inter_broker, peer)",
        ("test_forged_brokers.py", "test_a_client_on_the_listener_of_the_brokers"),
    ),
    Mutant(
        "a client may say what only brokers say",
        "broker/network/request_reader.py",
        "        if api.inter_broker_only and not connection.context.is_inter_broker:\n",
        "        if api.inter_broker_only and connection.closed:\n",
        ("../unit/broker/network/test_request_channel.py", "test_an_api_between_brokers"),
    ),
]
