"""The process beside each native broker: identity, epochs, role, write lease and replication of the log."""
