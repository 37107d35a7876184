"""The resources as typed values: what crds/*.yaml says in YAML, said in Python, and held equal by a test.

Every reconcile begins with one of the parse functions; the kubectl plugin reads resources through them too.

| module | what is there |
|---|---|
| `broker_group` | `BrokerGroup`, `BrokerGroupSpec`, `parse_broker_group` |
| `controller_cluster` | `ControllerCluster`, `ControllerClusterSpec`, `parse_controller_cluster` |
| `name_server` | `NameServer`, `NameServerSpec`, `parse_name_server` |
| `common` | `Resource`, `Spec`, `Metadata`, `Json`: what every kind has; references, sizes |
| `reserved_keys` | the RocketMQ keys that spec.config may not set, and which field stands for each |
| `quantity` | Kubernetes quantities (`10Gi`) as bytes |
| `decoding` | from JSON to structs; `SpecError` with the path of the field |
"""
