{{- define "tidegate.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 48 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 48 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "tidegate.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tidegate.labels" -}}
{{ include "tidegate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "tidegate.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "tidegate.claim" -}}
{{ .Values.spark.checkpointClaim | default (printf "%s-data" (include "tidegate.name" .)) }}
{{- end }}

{{/* Settings of Spark: executors in pods, which reach the driver by the name of its pod in the headless service. */}}
{{- define "tidegate.spark" -}}
{{- $volume := "spark.kubernetes.executor.volumes.persistentVolumeClaim.data" }}
spark.kubernetes.namespace: {{ .Release.Namespace }}
spark.kubernetes.container.image: {{ include "tidegate.image" . }}
spark.kubernetes.container.image.pullPolicy: {{ .Values.image.pullPolicy }}
{{- with .Values.imagePullSecrets }}
spark.kubernetes.container.image.pullSecrets: {{ range $n, $each := . }}{{ if $n }},{{ end }}{{ $each.name }}{{ end }}
{{- end }}
spark.kubernetes.driver.pod.name: env:POD_NAME
spark.kubernetes.executor.podTemplateFile: /etc/tidegate/executor.yaml
spark.kubernetes.executor.podTemplateContainerName: executor
spark.kubernetes.authenticate.executor.serviceAccountName: {{ include "tidegate.name" . }}-executor
spark.kubernetes.executor.label.app.kubernetes.io/name: {{ .Chart.Name }}
spark.kubernetes.executor.label.app.kubernetes.io/instance: {{ .Release.Name }}
spark.kubernetes.executor.label.app.kubernetes.io/component: executor
{{ $volume }}.mount.path: /data
{{ $volume }}.options.claimName: {{ include "tidegate.claim" . }}
spark.driver.host: env:DRIVER_HOST
spark.driver.bindAddress: 0.0.0.0
spark.driver.port: 7078
spark.driver.blockManager.port: 7079
spark.pyspark.python: /opt/tidegate/bin/python
spark.executor.instances: {{ .Values.spark.executors }}
spark.executor.cores: {{ .Values.spark.slots }}
spark.executor.memory: {{ .Values.spark.memory }}
spark.kubernetes.executor.request.cores: {{ .Values.spark.cpu | quote }}
{{- with .Values.spark.cpuLimit }}
spark.kubernetes.executor.limit.cores: {{ . | quote }}
{{- end }}
{{- end }}

{{/* The profile of all processes: docs/cluster.md. */}}
{{- define "tidegate.profile" -}}
{{- $kafka := required "log.kafka: expected the brokers of Kafka, host:9092" .Values.log.kafka }}
{{- $url := required "registry.url: expected postgresql://USER@HOST/DATABASE" .Values.registry.url }}
{{- $registry := dict "url" $url }}
{{- if .Values.registry.passwordSecret.name }}{{ $_ := set $registry "password" (dict "env" "REGISTRY_PASSWORD") }}{{ end }}
{{- $profile := dict "log" (dict "kafka" $kafka) "registry" $registry "access" (dict "required" true) }}
{{- $_ := set $profile "metrics" (dict "host" "0.0.0.0" "port" (int .Values.metrics.port)) }}
{{- if .Values.secretsKey.name }}{{ $_ := set $profile "secrets" (dict "key" "file:/etc/tidegate-secrets/secrets.key") }}{{ end }}
{{- if .Values.gateway.tlsSecret }}
{{- $_ := set $profile "tls" (dict "cert" "/etc/tidegate-tls/tls.crt" "key" "/etc/tidegate-tls/tls.key") }}
{{- end }}
{{- $spark := dict }}
{{- if eq .Values.spark.master "kubernetes" }}
{{- $_ := set $profile "master" "k8s://https://kubernetes.default.svc" }}
{{- $_ := set $profile "shared" true }}
{{- $spark = include "tidegate.spark" . | fromYaml }}
{{- end }}
{{- $spark = mergeOverwrite $spark .Values.spark.settings }}
{{- if $spark }}{{ $_ := set $profile "spark" $spark }}{{ end }}
{{- toYaml (mergeOverwrite $profile (deepCopy .Values.profile)) }}
{{- end }}

{{- define "tidegate.env" -}}
{{- if .Values.registry.passwordSecret.name -}}
- name: REGISTRY_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ .Values.registry.passwordSecret.name }}, key: {{ .Values.registry.passwordSecret.key }}}}
{{- end }}
{{- range $name, $secret := .Values.secretEnv }}
- name: {{ $name }}
  valueFrom: {secretKeyRef: {name: {{ $secret.name }}, key: {{ $secret.key }}}}
{{- end }}
- {name: TIDEGATE_LOG, value: json}
{{- end }}

{{- define "tidegate.mounts" -}}
- {name: profile, mountPath: /etc/tidegate, readOnly: true}
- {name: tmp, mountPath: /tmp}
{{- if .Values.secretsKey.name }}
- {name: secrets, mountPath: /etc/tidegate-secrets, readOnly: true}
{{- end }}
{{- if .Values.gateway.tlsSecret }}
- {name: tls, mountPath: /etc/tidegate-tls, readOnly: true}
{{- end }}
{{- end }}

{{- define "tidegate.volumes" -}}
- {name: profile, configMap: {name: {{ include "tidegate.name" . }}}}
- {name: tmp, emptyDir: {}}
{{- if .Values.secretsKey.name }}
- name: secrets
  secret:
    secretName: {{ .Values.secretsKey.name }}
    items: [{key: {{ .Values.secretsKey.key }}, path: secrets.key}]
    defaultMode: 0440
{{- end }}
{{- if .Values.gateway.tlsSecret }}
- {name: tls, secret: {secretName: {{ .Values.gateway.tlsSecret }}, defaultMode: 0440}}
{{- end }}
{{- end }}

{{- define "tidegate.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "tidegate.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Pods are replaced when their profile changes. Definitions, TLS files and secrets are read again without that. */}}
{{- define "tidegate.podAnnotations" -}}
checksum/profile: {{ include "tidegate.profile" . | sha256sum }}
{{- with .Values.podAnnotations }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "tidegate.probes" -}}
{{- $scheme := ternary "HTTPS" "HTTP" (ne .Values.gateway.tlsSecret "") -}}
startupProbe:
  httpGet: {path: /livez, port: http, scheme: {{ $scheme }}}
  periodSeconds: 2
  failureThreshold: 90
livenessProbe:
  httpGet: {path: /livez, port: http, scheme: {{ $scheme }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: http, scheme: {{ $scheme }}}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 3
{{- end }}
