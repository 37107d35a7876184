"""What to do next: pure functions from the observed state to a `Plan`.

Plans keep no state. Every part reads the current state, so an operator can stop after any action and continue
elsewhere, and events in between need no special code.

| module | what it decides |
|---|---|
| `groups/plan` | the plan of a BrokerGroup: the parts below in order |
| `groups/state` | derived from the observed state: which pod is which replica, which replicas are in sync |
| `groups/objects` | the objects to apply |
| `groups/scaling` | how many replicas; hibernating and waking; cleaning up after scaled-down replicas |
| `groups/rollout` | which pod is replaced next, and when the master hands over |
| `groups/rebuild` | a replica rebuilt from empty volumes |
| `groups/storage` | larger volumes |
| `groups/fencing` | which replicas refuse sends |
| `groups/identity` | ids written on pods and volumes; ids without a pod or volume |
| `groups/verification` | when the next comparison of the logs is overdue |
| `groups/deletion` | the finalizer, and the end |
| `groups/write_lease` | leases that are longer than the controllers wait |
| `groups/generation` | what is left of the newest generation of the spec |
| `groups/status`, `groups/conditions` | the status, its conditions, and Events for changes |
| `controller_cluster`, `name_server` | the plans of the other two kinds |
| `references` | what a spec names and cannot be used |
| `membership` | the number of controllers |
| `cluster_status` | the status of a ControllerCluster |
| `step` | how parts become one plan; settings of all plans |
"""
