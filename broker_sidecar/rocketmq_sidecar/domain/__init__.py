"""What the sidecar decides: values in, values out, the time as an argument."""
