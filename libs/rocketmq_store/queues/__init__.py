"""Consume queues: files, dispatch into them, reading through them."""
