"""What is compared, and what has to be read for it."""
