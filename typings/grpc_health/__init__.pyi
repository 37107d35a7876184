# Hand-written stubs for the part of grpcio-health-checking 1.85 that the controller uses; it ships none itself.
