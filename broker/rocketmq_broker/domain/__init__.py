"""What the broker decides: values in, values out, the time as an argument."""
