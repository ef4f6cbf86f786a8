"""The mutants of `test_mutants.py`, a table for each package whose lines they break."""

from __future__ import annotations

from scenarios.mutants import broker, controller, runtime, storage

MUTANTS = [*broker.MUTANTS, *controller.MUTANTS, *runtime.MUTANTS, *storage.MUTANTS]
