"""What all logs share of a disk: its health, small files beside the segments, removal."""
