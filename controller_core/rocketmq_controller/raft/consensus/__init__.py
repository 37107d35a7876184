"""The deterministic core: elections, replication, commands, snapshots, members. No sockets, files or clocks."""
