"""The storage engine on files: commit log segments, consume queues, checkpoint, recovery, retention."""
