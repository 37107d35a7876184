"""From differing digests to the record and the right copy."""
