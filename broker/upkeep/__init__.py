"""What a broker does for its logs beside requests: cleaning, retention, checkpoints, failing disks."""
