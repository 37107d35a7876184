"""Proves that the replicas of a broker group hold the same commit log, or names every difference to the message."""
