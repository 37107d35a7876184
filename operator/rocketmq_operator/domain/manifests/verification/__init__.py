"""The objects of spec.verification."""
