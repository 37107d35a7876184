"""A member's folder: journal, term and vote, snapshots."""
