"""A small RocketMQ client for our own tools, tests and benchmarks: routes, sending, reading back."""
