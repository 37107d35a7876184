"""Counts of what went in and out, kept by the send and pull paths; statistics and metrics read them."""


class Traffic:
    """Totals since the start; bytes are those of stored records."""

    __slots__ = ("got_bytes", "got_messages", "pulls_found", "pulls_missed", "put_bytes", "put_messages")

    def __init__(self) -> None:
        self.put_messages = 0
        self.put_bytes = 0
        self.got_messages = 0
        self.got_bytes = 0
        self.pulls_found = 0
        self.pulls_missed = 0
