"""Mutants of `runtime/`: what brokers read into configurations, and when they give up on a connection."""

from __future__ import annotations

from scenarios.mutants.mutant import Mutant, transcript

CONFIGURATIONS = "test_configurations.py"
OF_CUTS = "test_cuts.py"
MUTANTS = [
    Mutant(
        "brokers wait for TCP after a cut",
        "runtime/network.py",
        "REACH_TIMEOUT_S = 2.0\n",
        "REACH_TIMEOUT_S = 60.0\n",
        (OF_CUTS, "test_acks_flow_at_once"),
    ),
    Mutant(
        "a configuration that cannot be read counts as none",
        "runtime/config/standing.py",
        "        return Standing(None, str(error))\n",
        "        return Standing({}, str(error))\n",
        (CONFIGURATIONS, "test_a_topic_keeps"),
    ),
    Mutant(
        "a word of brokers that cannot be read counts as none",
        "runtime/config/dynamic.py",
        "            undecided |= TOPIC_DEFAULTS\n",
        "",
        (CONFIGURATIONS, "test_what_zookeeper_says"),
    ),
    Mutant(
        "a value that cannot be used counts as the default",
        "runtime/config/topic.py",
        "        safe |= _KEEP_ALL | _UNDECIDED.get(TOPIC_KEYS[error.key].attribute, {})\n",
        "        assert error.key in TOPIC_KEYS\n",
        (CONFIGURATIONS, "test_"),
    ),
    Mutant(
        "an unknown key discards the others",
        "runtime/config/topic.py",
        "            unknown.append(InvalidConfig(name, text, why))\n            continue\n",
        "            return {}, [InvalidConfig(name, text, why)], []\n",
        (CONFIGURATIONS, "test_a_topic_keeps"),
    ),
    Mutant(
        "bytes of a file that was cut meanwhile are sent",
        "runtime/disk.py",
        "        return self.file.truncations != self.truncations\n",
        "        return self.file.truncations < self.truncations\n",
        transcript("r18_read_append_truncate"),
    ),
]
