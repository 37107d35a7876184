"""kopf's registrations: every event of a resource or a child ends in one reconcile."""
