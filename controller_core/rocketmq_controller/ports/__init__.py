"""What asks a controller: remoting, gRPC, probes and metrics."""
