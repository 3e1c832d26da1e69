{{/* Labels of every object. The pods have the first one only, so that a new version of the chart alone restarts nothing. */}}
{{- define "configmonitor-operator.labels" -}}
app.kubernetes.io/name: configmonitor-operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "configmonitor-operator.image" -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag }}{{ end }}
{{- end }}

{{/* What the operator may do in a namespace, or in all of them. */}}
{{- define "configmonitor-operator.rules" -}}
# list and watch: the metadata. get: the content of the ConfigMaps that ConfigMonitors name.
- apiGroups: [""]
  resources: ["configmaps"]
  verbs: ["get", "list", "watch"]
# The operator deletes pods, and never changes them.
- apiGroups: [""]
  resources: ["pods"]
  verbs: ["list", "watch", "delete"]
# deletionPolicy: Evict.
- apiGroups: [""]
  resources: ["pods/eviction"]
  verbs: ["create"]
# The desired replicas of the owners of pods, for the budget and for the end of a restart.
- apiGroups: ["apps"]
  resources: ["replicasets", "statefulsets", "daemonsets"]
  verbs: ["get"]
- apiGroups: [""]
  resources: ["replicationcontrollers"]
  verbs: ["get"]
- apiGroups: ["magalix.com"]
  resources: ["configmonitors"]
  verbs: ["get", "list", "watch"]
- apiGroups: ["magalix.com"]
  resources: ["configmonitors/status"]
  verbs: ["update"]
- apiGroups: ["events.k8s.io"]
  resources: ["events"]
  verbs: ["create"]
{{- if and .Values.allNamespaces .Values.namespaceSelector }}
- apiGroups: [""]
  resources: ["namespaces"]
  verbs: ["list", "watch"]
{{- end }}
{{- end }}

{{- define "configmonitor-operator.surgeRules" -}}
- apiGroups: [""]
  resources: ["pods"]
  verbs: ["patch"]
- apiGroups: ["apps"]
  resources: ["deployments"]
  verbs: ["get"]
{{- end }}

{{/* list and watch: the metadata. get: the content of the Secrets that ConfigMonitors name. */}}
{{- define "configmonitor-operator.secretRules" -}}
- apiGroups: [""]
  resources: ["secrets"]
  {{- with .Values.secrets.names }}
  resourceNames: {{ toJson . }}
  {{- end }}
  verbs: ["get", "list", "watch"]
{{- end }}

{{/*
A Role and its RoleBinding in each of these namespaces, or in each that the operator serves, or a ClusterRole and its ClusterRoleBinding for all. Takes the name,
the rules, the namespaces, and the root. In namespaces of a list the names end in -shared: an operator of such a namespace has the others.
*/}}
{{- define "configmonitor-operator.grant" -}}
{{- $root := .root }}
{{- $namespaces := .namespaces | default $root.Values.namespaces }}
{{- $cluster := ternary "Cluster" "" (and $root.Values.allNamespaces (empty $namespaces)) }}
{{- $name := empty $namespaces | ternary .name (print .name "-shared") }}
{{- range $namespaces | default (list $root.Release.Namespace) }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $cluster }}Role
metadata:
  name: {{ $name }}
  {{- if not $cluster }}
  namespace: {{ . | quote }}
  {{- end }}
  labels:
    {{- include "configmonitor-operator.labels" $root | nindent 4 }}
rules:
  {{- $.rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $cluster }}RoleBinding
metadata:
  name: {{ $name }}
  {{- if not $cluster }}
  namespace: {{ . | quote }}
  {{- end }}
  labels:
    {{- include "configmonitor-operator.labels" $root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $cluster }}Role
  name: {{ $name }}
subjects:
  - kind: ServiceAccount
    name: configmonitor-operator
    namespace: {{ $root.Release.Namespace | quote }}
{{- end }}
{{- end }}
