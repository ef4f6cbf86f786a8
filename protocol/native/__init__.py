"""The native dialect of the wire: how its frames are made and read."""
