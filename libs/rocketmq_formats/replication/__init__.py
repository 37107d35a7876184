"""Bytes of AutoSwitchHA replication between a master and its slaves."""
