"""Records and consume queues of one log."""
