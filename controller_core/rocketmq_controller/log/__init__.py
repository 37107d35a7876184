"""From a decision to a committed change: proposals, the entries' bytes, and the state they make."""
