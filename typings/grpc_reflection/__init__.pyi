# Hand-written stubs for the part of grpcio-reflection 1.85 that the controller uses; it ships none itself.
