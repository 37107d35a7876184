"""The desired Kubernetes objects of a ControllerCluster, a NameServer or a BrokerGroup: pure functions from the spec to
whole objects for server-side apply. Actual state is not read here.

Equal specs give equal objects in equal order, so an apply without a change writes nothing.
"""
