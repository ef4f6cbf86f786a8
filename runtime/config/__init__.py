"""A broker's and a topic's configuration; import what is needed from the file that has it.

* `broker`, `topic`      every key, declared as a typed attribute that holds its resolved value
* `keys`                 how a key is declared: its kind, what is allowed, the table that follows
* `values`, `listeners`  the error that names what is not allowed; listeners
* `properties`           a file of keys and texts, and several sources of them in layers
* `reading`              from these texts to a broker's configuration
* `contradictions`       values that exclude each other
* `dynamic`, `standing`  what ZooKeeper has over the broker's file, and who hears when it changes
* `reference`            the page `docs/configuration.md`, made from the keys

This file imports nothing, so that who needs one value does not load all of them.
"""
