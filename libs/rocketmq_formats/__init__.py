"""RocketMQ's bytes: frames, headers and bodies, defined once. Pure: no IO, no clock."""
