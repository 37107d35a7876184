"""The commit log: mapped files and records."""
