{{/* Labels of every object. The pods have app.kubernetes.io/name only, so that a new version of the chart alone restarts nothing. */}}
{{- define "configmonitor-operator.labels" -}}
{{- $own := dict "app.kubernetes.io/name" "configmonitor-operator" "app.kubernetes.io/instance" .Release.Name "app.kubernetes.io/version" .Chart.AppVersion }}
{{- $_ := set $own "app.kubernetes.io/managed-by" .Release.Service }}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_") }}
{{- merge $own .Values.commonLabels | toYaml }}
{{- end }}

{{- define "configmonitor-operator.serviceAccount" -}}
{{ .Values.serviceAccount.name | default "configmonitor-operator" }}
{{- end }}

{{/*
REPOSITORY:TAG@DIGEST. Takes the image and the root. A node pulls the digest, whatever the tag says. So the digest that the chart ships is refused with any tag but
its own: otherwise whoever sets only the tag runs another version.
*/}}
{{- define "configmonitor-operator.image" -}}
{{- $repository := .image.repository }}
{{- with .root.Values.global.imageRegistry }}
{{- $repository = regexReplaceAll "^(([^/]*[.:][^/]*|localhost)/)?" $repository (print (trimSuffix "/" .) "/") }}
{{- end }}
{{- $shipped := index .root.Chart.Annotations "artifacthub.io/images" }}
{{- if and .image.digest (contains .image.digest $shipped) (not (contains (printf ":%s@%s" .image.tag .image.digest) $shipped)) }}
{{- fail (printf "the digest of %s is not that of the tag %s: set both, or the digest to \"\"" $repository .image.tag) }}
{{- end }}
{{- $repository }}:{{ .image.tag }}{{ with .image.digest }}@{{ . }}{{ end }}
{{- end }}

{{/* The text of a policy, with the labels of the chart and the name of the ServiceAccount. A dot of the name matches only a dot. */}}
{{- define "configmonitor-operator.policy" -}}
{{- $name := include "configmonitor-operator.serviceAccount" .root }}
{{- $labels := include "configmonitor-operator.labels" .root | nindent 4 }}
{{- $text := .text | replace ":configmonitor-operator$" (printf ":%s$" ($name | replace "." "[.]")) | replace ":configmonitor-operator'" (printf ":%s'" $name) }}
{{- $text := $text | replace "ame: configmonitor-operator-surge\n" (printf "ame: %s-surge\n" $name) }}
{{- $text | replace "\n    app.kubernetes.io/name: configmonitor-operator\n" (print $labels "\n") }}
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

{{/* list and watch: the metadata. get: the content of the Secrets that ConfigMonitors name. */}}
{{- define "configmonitor-operator.secretRules" -}}
- apiGroups: [""]
  resources: ["secrets"]
  {{- with .Values.secrets.names }}
  resourceNames: {{ toJson . }}
  {{- end }}
  verbs: {{ empty .Values.secrets.names | ternary (list "get" "list" "watch") (list "get") | toJson }}
{{- end }}

{{/*
A Role and its RoleBinding in each of these namespaces, or in each that the operator serves, or a ClusterRole and its ClusterRoleBinding for all. Takes the name,
the rules or the name of a ClusterRole that has them, the namespaces, and the root. In namespaces of a list the names end in -shared: an operator of such a
namespace has the others.
*/}}
{{- define "configmonitor-operator.grant" -}}
{{- $root := .root }}
{{- $namespaces := .namespaces | default $root.Values.namespaces }}
{{- $cluster := ternary "Cluster" "" (and $root.Values.allNamespaces (empty $namespaces)) }}
{{- $name := empty $namespaces | ternary .name (print .name "-shared") }}
{{- range $namespaces | default (list $root.Release.Namespace) }}
{{- if $.rules }}
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
{{- end }}
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
  kind: {{ empty $.clusterRole | ternary $cluster "Cluster" }}Role
  name: {{ $.clusterRole | default $name }}
subjects:
  - kind: ServiceAccount
    name: {{ include "configmonitor-operator.serviceAccount" $root | quote }}
    namespace: {{ $root.Release.Namespace | quote }}
{{- end }}
{{- end }}
