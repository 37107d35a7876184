"""gRPC ports: TLS, health, limits."""
