"""Replication of the commit log between replicas, both ways, and the epoch file."""
