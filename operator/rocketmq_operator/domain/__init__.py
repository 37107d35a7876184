"""What the operator knows and decides: values in, values out, `now` as an argument."""
