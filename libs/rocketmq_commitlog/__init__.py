"""Reading a replica's commit log files without owning them: for verification, here and in the sidecar."""
