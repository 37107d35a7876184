"""This replica as the broker sees it: what the sidecar orders, what is asked about it, whether its log is whole."""
