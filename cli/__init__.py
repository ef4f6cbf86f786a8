"""The `strandline` command and the embedded cluster."""
