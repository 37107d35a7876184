{{/* The rights that the operator uses in a watched namespace, and no others; e2e/chart/test_rbac.py compares the API
     server's answers with this list. Applying (server-side) is patch, and create where the object is new. It makes Raft and replication secrets, and
     reads those that resources name; it cannot list Secrets. */}}
{{- define "rocketmq-ha.rules" -}}
- apiGroups: [rocketmq-ha.io]
  resources: [brokergroups, controllerclusters, nameservers]
  verbs: [list, watch, patch]
- apiGroups: [rocketmq-ha.io] # passed on to the verification's job, which reads its own group
  resources: [brokergroups]
  verbs: [get]
- apiGroups: [rocketmq-ha.io]
  resources: [brokergroups/status, controllerclusters/status, nameservers/status]
  verbs: [patch]
- apiGroups: [rocketmq-ha.io] # needed with OwnerReferencesPermissionEnforcement (OpenShift)
  resources: [brokergroups/finalizers, controllerclusters/finalizers, nameservers/finalizers]
  verbs: [update]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services, configmaps, serviceaccounts]
  verbs: [list, watch, create, patch, delete] # of a verification that was removed from its group
- apiGroups: [batch]
  resources: [cronjobs]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [rbac.authorization.k8s.io] # rights of a verification's job: only such as the operator has itself
  resources: [roles, rolebindings]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [list, watch, create, patch, delete] # a hibernated or single replica has none
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [persistentvolumeclaims] # made by StatefulSets, and for a verification's history
  verbs: [list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods] # made by StatefulSets
  verbs: [list, watch, patch, delete]
- apiGroups: [""]
  resources: [pods] # passed on to the verification's job, which starts and ends Spark's executors
  verbs: [get, create, deletecollection]
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, create]
- apiGroups: [""]
  resources: [events]
  verbs: [list, create] # of StatefulSets whose pods are refused
{{- end -}}

{{/* Leader election, in the operator's own namespace. A name cannot restrict create. */}}
{{- define "rocketmq-ha.leaseRules" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [rocketmq-operator]
  verbs: [get, update]
{{- end -}}

{{/* The hook that takes finalizers off. */}}
{{- define "rocketmq-ha.releaseRules" -}}
- apiGroups: [rocketmq-ha.io]
  resources: [brokergroups, controllerclusters, nameservers]
  verbs: [get, list, patch]
{{- end -}}

{{/* The same hook, in the operator's namespace: stop the operator, wait until its pods are gone, take its Lease, delete it. */}}
{{- define "rocketmq-ha.stopRules" -}}
- apiGroups: [apps]
  resources: [deployments/scale]
  resourceNames: [{{ include "rocketmq-ha.operatorName" . }}]
  verbs: [patch]
- apiGroups: [""]
  resources: [pods]
  verbs: [list]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [rocketmq-operator]
  verbs: [get, update, delete]
{{- end -}}
