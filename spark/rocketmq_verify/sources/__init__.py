"""Where logs are read from: files, or sidecars."""
