"""What strangers may send: `make fuzz` to real processes, a small part of it to the decoders as a unit test."""
