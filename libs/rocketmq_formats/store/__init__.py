"""Bytes of the files in a broker's store directory."""
