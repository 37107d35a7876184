"""The official RocketMQ, run from its released jars.

For `--engine apache`, and for tests and benchmarks, which have more of it in tests/lab.
"""
