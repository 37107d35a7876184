"""What to do next: pure functions from what is observed to a `Plan`.

Nothing is remembered between two plans. Every part looks at the world as it is, so an operator that stops after any
action and starts again elsewhere goes on where it was, and whatever happens meanwhile needs no path of its own.

| module | what it decides |
|---|---|
| `group` | the plan of a BrokerGroup: the parts below in order |
| `state` | what follows from the observation: who is who, who is in sync |
| `objects` | the objects to apply |
| `scaling` | how many replicas; hibernating and waking; what scaled-down replicas leave behind |
| `rollout` | which pod is replaced next, when the master hands over |
| `rebuild` | a replica made anew |
| `storage` | larger volumes |
| `fencing` | who refuses sends |
| `identity` | ids written on pods and volumes; ids that nobody carries any more |
| `verification` | when the next comparison of the logs is overdue |
| `deletion` | the finalizer, and the end |
| `controller_cluster`, `name_server` | the plans of the other two kinds |
| `step` | how parts become one plan |
"""
