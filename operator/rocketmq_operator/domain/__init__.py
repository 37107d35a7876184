"""The operator's observed state and decisions: values in, values out, `now` as an argument."""
