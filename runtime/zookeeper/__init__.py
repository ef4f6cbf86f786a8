"""The coordination seam over a real ZooKeeper, through kazoo."""
