"""The API server: calls, watches, events, the Lease."""
