"""Deciding about replicas' logs, values in, values out: no files, sockets, clocks or Spark."""
