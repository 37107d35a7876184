"""The native engine: the client protocol over a commit log that it appends to while it holds the write lease."""
