"""Rows into topics: which columns a sink takes, and how they become records."""
