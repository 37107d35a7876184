"""gRPC contracts between our processes; the .proto files are the source, the Python beside them is made by `make proto`."""
