"""One module per verb: what it asks, does and shows."""
