"""Route tables and liveness: values in, values out, the time as an argument."""
