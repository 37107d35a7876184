"""Probes, metrics and gRPC: the ports for operators, Kubernetes and the verification."""
