"""The parts of a BrokerGroup's plan, each in its own module."""
