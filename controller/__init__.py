"""The control plane: elects leaders, creates and deletes topics."""
