"""Pulls, consumer groups and their offsets, retries, delayed messages."""
