{{/* Chart's name. */}}
{{- define "rocketmq-ha.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Prefix of all names; 40 characters leave room for what is added here and by the operator. */}}
{{- define "rocketmq-ha.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "rocketmq-ha.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The operator's objects; the suffix keeps them apart from those that the operator makes. */}}
{{- define "rocketmq-ha.operatorName" -}}
{{- include "rocketmq-ha.fullname" . -}}-operator
{{- end -}}

{{- define "rocketmq-ha.selectorLabels" -}}
app.kubernetes.io/name: rocketmq-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Pods of hooks and tests: not the operator's, so that no selector of the operator finds them. */}}
{{- define "rocketmq-ha.hookLabels" -}}
app.kubernetes.io/name: rocketmq-ha-hook
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: rocketmq-ha
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "rocketmq-ha.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "rocketmq-ha.selectorLabels" . }}
app.kubernetes.io/component: operator
app.kubernetes.io/part-of: rocketmq-ha
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* name, namespace, labels and annotations of an object.
     Takes root, name; optional namespace, labels, annotations, clusterScoped. */}}
{{- define "rocketmq-ha.metadata" -}}
{{- $root := .root -}}
name: {{ .name }}
{{- if not .clusterScoped }}
namespace: {{ .namespace | default $root.Release.Namespace }}
{{- end }}
labels:
  {{- include "rocketmq-ha.labels" $root | nindent 2 }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (.annotations | default dict) $root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "rocketmq-ha.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "rocketmq-ha.operatorName" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{- define "rocketmq-ha.tag" -}}
{{- .Values.image.tag | default .Chart.AppVersion -}}
{{- end -}}

{{- define "rocketmq-ha.image" -}}
{{- printf "%s/operator:%s" (.Values.image.repository | trimSuffix "/") (include "rocketmq-ha.tag" .) -}}
{{- end -}}

{{/* The watched namespaces as a YAML list; of no meaning with watchAllNamespaces. */}}
{{- define "rocketmq-ha.namespaces" -}}
{{- if .Values.watchNamespaces -}}
{{- .Values.watchNamespaces | uniq | sortAlpha | toYaml -}}
{{- else -}}
{{- list .Release.Namespace | toYaml -}}
{{- end -}}
{{- end -}}

{{/* OPERATOR_NAMESPACES: empty means all. */}}
{{- define "rocketmq-ha.namespacesEnv" -}}
{{- if and .Values.watchAllNamespaces .Values.watchNamespaces -}}
{{- fail "watchAllNamespaces and watchNamespaces exclude each other: leave one of them out" -}}
{{- end -}}
{{- if not .Values.watchAllNamespaces -}}
{{- include "rocketmq-ha.namespaces" . | fromYamlArray | join "," -}}
{{- end -}}
{{- end -}}

{{/* What operator, hook and test containers have in common. */}}
{{- define "rocketmq-ha.podPlacement" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- if eq (toString .Values.fixedIds) "false" }}
  {{- toYaml (omit .Values.podSecurityContext "runAsUser" "runAsGroup" "fsGroup") | nindent 2 }}
  {{- else }}
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* Resources of the release must lie where the operator looks. Takes root and kind. */}}
{{- define "rocketmq-ha.checkWatched" -}}
{{- $root := .root -}}
{{- if and (not $root.Values.watchAllNamespaces) (not (has $root.Release.Namespace (include "rocketmq-ha.namespaces" $root | fromYamlArray))) -}}
{{- fail (printf "%s.enabled: it would lie in %s, which is not in watchNamespaces: add it there" .kind $root.Release.Namespace) -}}
{{- end -}}
{{- end -}}

{{- define "rocketmq-ha.controllerClusterName" -}}
{{- .Values.controllerCluster.name | default (include "rocketmq-ha.fullname" .) -}}
{{- end -}}

{{- define "rocketmq-ha.nameServerName" -}}
{{- .Values.nameServer.name | default (include "rocketmq-ha.fullname" .) -}}
{{- end -}}

{{- define "rocketmq-ha.brokerGroupName" -}}
{{- .Values.brokerGroup.name | default (printf "%s-broker-a" (include "rocketmq-ha.fullname" .)) -}}
{{- end -}}

{{/* Metadata of a resource: no operator labels, for the operator hands labels on. Takes root and name. */}}
{{- define "rocketmq-ha.resourceMetadata" -}}
name: {{ .name }}
namespace: {{ .root.Release.Namespace }}
labels:
  helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
  app.kubernetes.io/part-of: rocketmq-ha
  app.kubernetes.io/managed-by: {{ .root.Release.Service }}
  {{- with .root.Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Spec of a resource, with the release's IP families where it sets none. Takes root and spec. */}}
{{- define "rocketmq-ha.spec" -}}
{{- $spec := deepCopy .spec -}}
{{- $service := $spec.service | default dict -}}
{{- range $key := list "ipFamilyPolicy" "ipFamilies" -}}
{{- $value := index $.root.Values $key -}}
{{- if and $value (not (hasKey $service $key)) -}}
{{- $service = set $service $key $value -}}
{{- end -}}
{{- end -}}
{{- if $service -}}
{{- $_ := set $spec "service" $service -}}
{{- end -}}
{{- toYaml $spec -}}
{{- end -}}
