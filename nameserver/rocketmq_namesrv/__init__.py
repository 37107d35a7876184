"""The name server: who serves which topic, for clients and brokers."""
