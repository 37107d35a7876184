{{/* What the operator may do in a watched namespace; e2e/chart/test_rbac.py holds the server's answer against the same list.
     Nobody is given a list of Secrets: the operator makes a Raft secret and reads it by its name. */}}
{{- define "rocketmq-ha.rules" -}}
- apiGroups: [rocketmq-ha.io]
  resources: [brokergroups, controllerclusters, nameservers]
  verbs: [get, list, watch, patch]
- apiGroups: [rocketmq-ha.io]
  resources: [brokergroups/status, controllerclusters/status, nameservers/status]
  verbs: [get, patch]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services, configmaps]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, patch, delete]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch, patch, delete]
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, create]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
{{- end -}}

{{/* Only with watchAllNamespaces: which namespaces there are. */}}
{{- define "rocketmq-ha.clusterRules" -}}
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get, list, watch]
{{- end -}}

{{/* Leader election, in the operator's own namespace. A name cannot restrict create. */}}
{{- define "rocketmq-ha.leaseRules" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [rocketmq-operator]
  verbs: [get, patch, update]
{{- end -}}

{{/* The hook that takes finalizers off. */}}
{{- define "rocketmq-ha.releaseRules" -}}
- apiGroups: [rocketmq-ha.io]
  resources: [brokergroups, controllerclusters, nameservers]
  verbs: [get, list, patch]
{{- end -}}

{{/* The same hook, in the operator's namespace: stop the operator, wait for its Lease, take the Lease away. */}}
{{- define "rocketmq-ha.stopRules" -}}
- apiGroups: [apps]
  resources: [deployments/scale]
  resourceNames: [{{ include "rocketmq-ha.operatorName" . }}]
  verbs: [get, patch]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [rocketmq-operator]
  verbs: [get, patch, update, delete]
{{- end -}}
