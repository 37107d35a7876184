"""The resources as typed values, and the declarations that crds/*.yaml are made from.

Every reconcile begins with one of the parse functions; the kubectl plugin reads resources through them too.

| module | contents |
|---|---|
| `schema` | every field of spec and status with its description, bounds and rules; the generator of CRDs |
| `broker_group` | `BrokerGroup`, `parse_broker_group` |
| `controller_cluster` | `ControllerCluster`, `parse_controller_cluster` |
| `name_server` | `NameServer`, `parse_name_server` |
| `common` | `Resource`, `Metadata`, `Json`: what every kind has; sizes |
| `reserved_keys` | the RocketMQ keys that spec.config may not set, and which field sets each instead |
| `quantity` | Kubernetes quantities (`10Gi`) as bytes |
| `decoding` | from JSON to structs; `SpecError` with the path of the field |
| `names` | every name that the operator gives or reads |
"""
