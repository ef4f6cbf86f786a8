"""A broker's and a topic's configuration; import what is needed from the file that has it.

* `table`, `table_logs`  the table: one row per key
* `broker`, `topic`      the resolved values as typed attributes
* `values`, `listeners`  kinds, validators, listeners
* `properties`           a file of keys and texts, and several sources of them in layers
* `reading`              from these texts to a broker's configuration
* `contradictions`       values that exclude each other
* `dynamic`, `standing`  what ZooKeeper has over the broker's file
* `reference`            the page `docs/configuration.md`, made from the table

This file imports nothing, so that who needs one value does not load all of them.
"""
