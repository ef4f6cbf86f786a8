"""The group coordinator: who is in a group, and where it goes on."""
