"""What controllers and sidecars say."""
