"""The objects of a BrokerGroup."""
