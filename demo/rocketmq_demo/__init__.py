"""A whole RocketMQ group on loopback, for people and for tests."""
