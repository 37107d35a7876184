"""The Kubernetes objects that a ControllerCluster, a NameServer or a BrokerGroup shall have: pure functions from its
spec to whole objects, for server-side apply. The plan compares and applies them; nothing here asks what there is.

Equal specs give equal objects in equal order, so that an apply without a change writes nothing.
"""
