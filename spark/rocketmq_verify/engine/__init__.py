"""The parts that run on Spark."""
