"""The Kubernetes operator: turns BrokerGroup, ControllerCluster and NameServer resources into running processes."""
