"""Idempotent producers against a list of batches, through everything that happens to a log."""

from __future__ import annotations

from hypothesis import settings

from support.producer_machine import ProducerMachine

TestProducerMachine = ProducerMachine.TestCase
TestProducerMachine.settings = settings(max_examples=100, stateful_step_count=25)
