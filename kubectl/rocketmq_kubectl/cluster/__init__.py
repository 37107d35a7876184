"""The way to the cluster: API server, port-forward, controllers and sidecars."""
