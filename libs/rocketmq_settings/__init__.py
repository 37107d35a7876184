"""Every configuration key of the six processes, declared once.

A key is a field of a struct: its type, bounds and default, and by `key(...)` its meaning, who sets it on Kubernetes and
when a change takes effect. The processes' settings classes inherit the fields and add checks across keys. `table` reads
the declarations back: the keys of the other half of a replica, what spec.config may not set, the tables of
docs/configuration.md and docs/operator.md and the rules of the CRDs come from there.
"""
