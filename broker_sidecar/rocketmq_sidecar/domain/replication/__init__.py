"""The AutoSwitchHA protocol without sockets: master, slave, and who is in sync."""
