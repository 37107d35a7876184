"""What users write into each resource and read in its status, declared once.

A field of a spec is a field of a struct: type, bounds and default, and by `field(...)` its description and CEL rules.
The operator decodes resources into these structs; `crd` makes crds/*.yaml of the same declarations.

| module | contents |
|---|---|
| `declare` | `field`, `Rule`, `Column`, `CustomResource`: how fields and resources are declared |
| `common` | fields of every kind: images, storage, scheduling, pod template, config, conditions |
| `kubernetes` | shapes of Kubernetes' own types that are passed on as JSON |
| `broker_group`, `controller_cluster`, `name_server` | spec and status of each kind |
| `broker_group_parts`, `broker_group_status`, `verification` | what a BrokerGroup has inside |
| `differences` | where a field's default or bounds are not those of the key that it sets, and why |
| `crd` | from the declarations to a CustomResourceDefinition |
"""
