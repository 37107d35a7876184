"""Raft over PySyncObj; nothing outside this package knows which library carries the log."""
