"""Replicas compare their logs while they run, and repair damage."""
