"""The controller's rules, pure: values in, values out."""
