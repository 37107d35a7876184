"""Servers and clients of the remoting protocol."""
