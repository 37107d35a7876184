"""Configuration files, and changes while a process runs."""
