{{- /* A workload: its kind, its name, its annotations, those of its pod template, and what its container has. */}}
{{- define "workload" }}
---
apiVersion: {{ .apiVersion | default "apps/v1" }}
kind: {{ .kind }}
metadata:
  name: {{ .name }}
  annotations: {{ toJson .annotations }}
spec:
  {{- with .spec }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  selector: {matchLabels: {app: {{ .name }}}}
  template:
    metadata:
      labels: {app: {{ .name }}}
      annotations: {{ toJson (.ofTemplate | default dict) }}
    spec:
      containers:
        - name: app
          image: app
          envFrom:
            - configMapRef: {name: app-config}
            - secretRef: {name: app-token}
            - configMapRef: {name: ignored}
{{- end }}
