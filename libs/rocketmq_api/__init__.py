"""gRPC contracts between our processes: the .proto files are the source, `make proto` makes the Python beside them."""
