"""The control machine: events in, actions out."""
