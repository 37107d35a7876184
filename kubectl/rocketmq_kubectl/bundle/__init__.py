"""Support bundles: what is collected, and what is taken out of it."""
