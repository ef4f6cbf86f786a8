"""Mutants of `controller/`: what the controller decides by."""

from __future__ import annotations

from scenarios.mutants.mutant import Mutant, transcript

ACCEPTED_LOSSES = "test_accepted_losses.py"
CONTROLLER_LOSSES = "../unit/controller/term/test_losses.py"
ELIGIBLE_LEADERS = "test_eligible_leaders.py"
FAST_FAIL_OVER = "test_fast_fail_over.py"
FULL_DISKS = "test_full_disks.py"
LATER_EPOCHS = "test_later_epochs.py"
LIVES_IN_BETWEEN = "test_lives_in_between.py"
ORDERS = "../unit/controller/orders/test_sender.py"
ORDERLY_STOPS = "test_orderly_stops.py"
NEW_REPLICAS = "test_new_replicas.py"
REASONS = "test_reasons.py"
RECOVER = "test_recover.py"
REFUSED_LOGS = "test_refused_logs.py"
MENDED_STATES = "test_mended_states.py"
STANDING_WATCHES = "../unit/controller/term/test_standing_watches.py"
STOPPED_CONTROLLERS = "test_stopped_controllers.py"
STRAY_LOGS = "test_stray_logs.py"
SUSPICION = "../unit/controller/term/test_suspicion.py"
MUTANTS = [
    Mutant(
        "followers are not told where a suspected leader is",
        "controller/orders/broker_orders.py",
        "        for b in (*cluster_wide.live, *cluster_wide.suspects)\n",
        "        for b in cluster_wide.live\n",
        ("test_fast_fail_over.py", "test_who_starts_during_an_alarm"),
    ),
    Mutant(
        "who is only suspected is given up like who is dead",
        "controller/planning/planner.py",
        "    if any(member in context.suspects for member in missed):\n",
        "    if False:\n",
        (FAST_FAIL_OVER, "test_the_last_of_an_isr"),
    ),
    Mutant(
        "a suspicion outlasts the life that it is of",
        "controller/liveness/suspects.py",
        " if registered.get(broker_id) == gone}\n",
        " if broker_id in registered}\n",
        (SUSPICION, "test_a_suspect_that_registers_anew"),
    ),
    Mutant(
        "nobody else is asked before a broker is missed",
        "controller/liveness/witnesses.py",
        "    return bool(answers) or not others\n",
        "    return True\n",
        (FAST_FAIL_OVER, "test_where_all_others_refuse"),
    ),
    Mutant(
        "a controller is succeeded whose registration is another life's",
        "controller/term/controller_election.py",
        "(its.czxid, its.ephemeral_owner) != (found_gone.epoch, stat.ephemeral_owner)",
        "its.ephemeral_owner != stat.ephemeral_owner",
        (SUSPICION, "test_a_process_that_is_gone_is_replaced_only"),
    ),
    Mutant(
        "whoever is reached again counts as dead until it is started",
        "controller/liveness/suspects.py",
        "        self._gone.pop(broker.broker_id, None)\n",
        "",
        (FAST_FAIL_OVER, "test_who_refuses_connections_for_a_second"),
    ),
    Mutant(
        "the next controller does not go on with deletions",
        "controller/term/duties.py",
        "            self.deletion.look,\n            growth.look,\n",
        "            growth.look,\n",
        (STOPPED_CONTROLLERS, "test_whoever_comes_next"),
    ),
    Mutant(
        "the next controller does not go on with reassignments",
        "controller/term/duties.py",
        "            asked_by_tools.look,\n",
        "",
        (STOPPED_CONTROLLERS, "test_whoever_comes_next[move by znode-CRASH]"),
    ),
    Mutant(
        "what was cancelled while nobody leads loses the logs that it has made",
        "controller/reassignments/reassignments.py",
        "builder.stop(broker_id, [tp], delete=context.has_live_leader(tp))",
        "builder.stop(broker_id, [tp], delete=True)",
        ("test_reassignments.py", "test_what_is_cancelled_while_nobody_leads"),
    ),
    Mutant(
        "the next controller tells nobody which roles they have",
        "controller/term/fail_over.py",
        "    builder.leadership(context.partitions())\n",
        "",
        (STOPPED_CONTROLLERS, "test_whoever_comes_next[reassign-CRASH]"),
    ),
    Mutant(
        "the next controller does not look for elections that were asked for",
        "controller/term/duties.py",
        "            AskedElections(tools, elections).look,\n",
        "",
        ("test_preferred_leaders.py", "test_what_a_znode_asks_for"),
    ),
    Mutant(
        "a leadership goes to a broker that does not answer",
        "controller/planning/preferred_leaders.py",
        "    if preferred in silent:\n",
        "    if preferred in silent and not silent:\n",
        ("../unit/controller/partitions/test_preferred_elections.py", "test_who_has_died"),
    ),
    Mutant(
        "a znode that was asked for again is taken for the one that is done",
        "controller/term/asked_elections.py",
        "        if znode is None or znode.stat.mzxid != mzxid:\n",
        "        if znode is None:\n",
        ("../unit/controller/partitions/test_preferred_elections.py", "test_it_goes"),
    ),
    Mutant(
        "a state that was mended is believed of brokers that came back with a loss",
        "controller/topics/topic_changes.py",
        "            await self._settlement.settle(mended, partial(plan_losses, context, is_lossy))\n",
        "",
        (MENDED_STATES, "test_a_loss_is_said"),
    ),
    Mutant(
        "a loss that was made up is said of a state that is mended later",
        "controller/topics/topic_changes.py",
        " and broker.epoch > since[tp]\n",
        "\n",
        (MENDED_STATES, "test_a_loss_that_was_made_up"),
    ),
    Mutant(
        "an election whose answer was lost is somebody else's write",
        "controller/store.py",
        "                if found is not None and _is_done(change, found):\n",
        "                if found is not None and change.before is None and _is_done(change, found):\n",
        (ACCEPTED_LOSSES, "test_an_accepted_loss_ends"),
    ),
    Mutant(
        "an accepted loss covers who was not asked",
        "controller/partitions/recovery.py",
        "(were_asked and self._accepts_loss",
        "(asked and self._accepts_loss",
        (ACCEPTED_LOSSES, "test_the_longest_log_leads"),
    ),
    Mutant(
        "who has no room for a new log goes on being its leader",
        "controller/brokers/role_answers.py",
        "UNABLE = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.BROKER_NOT_AVAILABLE)\n",
        "UNABLE = (ErrorCode.KAFKA_STORAGE_ERROR,)\n",
        (FULL_DISKS, "test_a_new_topic_is_led"),
    ),
    Mutant(
        "a topic counts as created before a refusal of its leader is handled",
        "controller/topics/first_leaders.py",
        "                if standing.leader_epochs == before.leader_epochs and self._are_told(partitions, before):\n",
        "                if standing:\n",
        (FULL_DISKS, "test_a_new_topic_without_room"),
    ),
    Mutant(
        "no check of the controller's epoch in its transactions",
        "controller/store.py",
        "multi_many([[self._fence, *one]",
        "multi_many([[Check(znodes.CONTROLLER_EPOCH_PATH, -1), *one]",
        transcript("r09_nobody_else_wrote"),
    ),
    Mutant(
        "a replica that was refused once counts as refused for good",
        "controller/brokers/role_answers.py",
        "                if context.note_role(replica):\n",
        "                if False:\n",
        (REASONS, "test_a_replica_that_is_well_again"),
    ),
    Mutant(
        "nobody is told anew why a replica is refused",
        "controller/brokers/role_answers.py",
        " and context.note_refusal(replica, why):\n",
        " and not context.note_refusal(replica, why):\n",
        (REASONS, "test_a_refused_follower"),
    ),
    Mutant(
        "who died before the controller heard that it joined stays in the ISR",
        "controller/partitions/settlement.py",
        "self.settle(list(dict.fromkeys([*partitions, *stale])), planner)\n",
        "self.settle(list(dict.fromkeys(partitions)), planner)\n",
        ("test_fail_over.py", "test_who_dies_before_the_controller"),
    ),
    Mutant(
        "a replica is new only while its controller remembers that it made the state",
        "controller/orders/broker_orders.py",
        "is_new = anew or self._context.is_new(replica, topic)",
        "is_new = state.leader_epoch == 0 and state.mzxid == 0",
        (NEW_REPLICAS, "test_a_new_replica_is_hosted"),
    ),
    Mutant(
        "a replica is new because its partition's state is",
        "controller/orders/broker_orders.py",
        "is_new = anew or self._context.is_new(replica, topic)",
        "is_new = state.leader_epoch <= 1",
        (NEW_REPLICAS, "test_a_state_that_was_made_anew"),
    ),
    Mutant(
        "nobody is told what holds a deletion up",
        "controller/topics/topic_changes.py",
        "        if unfinished != context.unfinished_deletions:\n",
        "        if False:\n",
        (REFUSED_LOGS, "test_a_deletion_waits"),
    ),
    Mutant(
        "a controller forgets whom it removed below the minimum",
        "controller/planning/planner.py",
        "        elr=() if unclean else tuple(member for member in state.whole if member not in isr),\n",
        "        elr=(),\n",
        transcript("r07_last_replica_returns_first"),
    ),
    Mutant(
        "a controlled shutdown rests on a broker that does not answer",
        "controller/orders/silent.py",
        "    return [broker_id for broker_id in broker_ids if broker_id not in answered]\n",
        "    return []\n",
        (ORDERLY_STOPS, "test_who_stops_hands_over"),
    ),
    Mutant(
        "a recovery believes what an earlier life said",
        "controller/partitions/recovery.py",
        "sorted(ends.keys() - of_this_life)",
        "()",
        (LIVES_IN_BETWEEN, "test_a_recovery_does_not"),
    ),
    Mutant(
        "a recovery is written whatever lives began since",
        "controller/store.py",
        "            [*_lives_checked(group), *(operation",
        "            [*(operation",
        (LIVES_IN_BETWEEN, "test_a_recovery_is_not"),
    ),
    Mutant(
        "a leader is not told of the epoch that a lossy broker wrote",
        "controller/partitions/settlement.py",
        "if may_play or state.leader_epoch != before.leader_epoch:",
        "if may_play:",
        (LIVES_IN_BETWEEN, "test_a_leader_hears_"),
    ),
    Mutant(
        "a broker does not hear that nobody rests on its stray log any more",
        "controller/partitions/settlement.py",
        "if may_play or state.leader_epoch != before.leader_epoch:",
        "if state.leader_epoch != before.leader_epoch:",
        (STRAY_LOGS, "test_it_begins_anew_once"),
    ),
    Mutant(
        "a replica that begins anew counts as one that has everything",
        "controller/partitions/accepted_losses.py",
        "        await self._settlement.settle_and_announce(partitions, partial(plan_losses, context, is_refusing))\n",
        "",
        (STRAY_LOGS, "test_it_begins_anew_where_an_operator"),
    ),
    Mutant(
        "an election breaks the chain of our terms",
        "controller/term/controller_election.py",
        "    if follows_ours:  # it",
        "    if False:  # it",
        (LIVES_IN_BETWEEN, "test_eligible_replicas_"),
    ),
    Mutant(
        "a loss that was accepted waits for the death of whoever leads",
        "controller/partitions/settlement.py",
        "if self._context.has_live_leader(tp)]:",
        "if False]:",
        (SUSPICION, "test_an_accepted_loss_counts_no_more"),
    ),
    Mutant(
        "an operator's word does not count where a log has a later epoch",
        "controller/partitions/settlement.py",
        "if replicas and tp not in accepted}",
        "if replicas}",
        (LATER_EPOCHS, "test_an_operator_who_accepts"),
    ),
    Mutant(
        "a role of a later epoch than ZooKeeper has is taken for one that this controller gave",
        "controller/brokers/role_answers.py",
        "            if context.is_later(answer.log_epoch, tp):\n",
        "            if code is not ErrorCode.FENCED_LEADER_EPOCH and context.is_later(answer.log_epoch, tp):\n",
        (LATER_EPOCHS, "test_who_runs_on"),
    ),
    Mutant(
        "a partition's state counts although a log has a later epoch",
        "controller/partitions/settlement.py",
        "        return [change for change in changes if change.topic_partition not in doubtful]\n",
        "        return list(changes)\n",
        (LATER_EPOCHS, "test_who_has_later_epochs"),
    ),
    Mutant(
        "doubtful eligible replicas count as ours before they are judged",
        "controller/term/fail_over.py",
        "        await settlement.settle(list(context.partitions()), partial(plan_doubtful_eligibles, context))\n"
        "        await store.note_our_epoch(context.epoch)\n",
        "        await store.note_our_epoch(context.epoch)\n"
        "        await settlement.settle(list(context.partitions()), partial(plan_doubtful_eligibles, context))\n",
        (CONTROLLER_LOSSES, "test_eligible_replicas_are_believed"),
    ),
    Mutant(
        "a controller without contact goes on acting",
        "controller/term/term.py",
        "        if self.over is None and self._silence_left_s() <= 0:\n",
        "        if self.over and self._silence_left_s() <= 0:\n",
        transcript("r21_isolated_controller"),
    ),
    Mutant(
        "a leader hears of a departure before the move is known to have ended",
        "controller/reassignments/reassignments.py",
        "        await self._arrive_once_more()\n        moving",
        "        moving",
        ("../unit/controller/reassignments/test_taken_over.py", "test_no_leader_hears_of_a_departure"),
    ),
    Mutant(
        "a role that could not be taken is not given again",
        "controller/brokers/role_answers.py",
        "        if repeat:\n",
        "        if not repeat:\n",
        transcript("r13_half_become_follower"),
    ),
    Mutant(
        "a topic that is made anew takes back the deletion of an earlier replica",
        "controller/orders/broker_orders.py",
        "            self.stop.pop((topic_partition, topic_id), None)\n",
        "            for key in [key for key in self.stop if topic_id and key[0] == topic_partition]:\n"
        "                del self.stop[key]\n",
        (STRAY_LOGS, "test_a_replica_that_was_moved_away"),
    ),
    Mutant(
        "the log of an earlier topic goes last",
        "controller/orders/broker_orders.py",
        "    yield from _stop_replica(in_the_way, sender, now_us)\n",
        "    in_the_way.clear()\n",
        (ORDERS, "test_the_log_of_an_earlier_topic_goes"),
    ),
    Mutant(
        "each term of a controller has watches of its own",
        "controller/standing_watches.py",
        "        return self._standing(self._of_data, path, watch)\n",
        "        return watch\n",
        (STANDING_WATCHES, "test_who_is_elected_again"),
    ),
    Mutant(
        "what a znode is watched for keeps an earlier term in memory",
        "controller/standing_watches.py",
        "            standing.watches.clear()\n",
        "            standing.watches.copy()\n",
        (STANDING_WATCHES, "test_who_is_elected_again"),
    ),
]
