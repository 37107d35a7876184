"""Connections between members: the proof of the secret, sealed frames, messages."""
