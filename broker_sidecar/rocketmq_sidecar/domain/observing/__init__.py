"""What the sidecar beside an official broker decides."""
