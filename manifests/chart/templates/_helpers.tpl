{{- define "fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Of a component: dict "root" $ "suffix" "-webhook" (nothing for the scheduler). */}}
{{- define "name" -}}
{{- include "fullname" .root -}}{{- .suffix -}}
{{- end -}}

{{- define "selectorLabels" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}{{ .suffix }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- end -}}

{{- define "labels" -}}
{{ include "selectorLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* Of a component: what all their pods have, dict "root" $ "suffix" "" "values" .Values.scheduler. */}}
{{- define "podSpec" -}}
serviceAccountName: {{ include "name" . }}
automountServiceAccountToken: true
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with tpl (.values.priorityClassName | default "") .root }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
{{- if .values.topologySpreadConstraints }}
  {{- toYaml .values.topologySpreadConstraints | nindent 2 }}
{{- else }}
  - topologyKey: kubernetes.io/hostname
    maxSkew: 1
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "selectorLabels" . | nindent 8 }}
    matchLabelKeys: [pod-template-hash]
{{- end }}
terminationGracePeriodSeconds: 30
securityContext:
  {{- $own := dict "runAsNonRoot" true "seccompProfile" (dict "type" "RuntimeDefault") }}
  {{- toYaml (mergeOverwrite $own (deepCopy (.root.Values.podSecurityContext | default dict))) | nindent 2 }}
{{- end -}}

{{- define "container" -}}
{{- with .root.Values.image -}}
image: {{ ternary (printf "%s@%s" .repository .digest) (printf "%s:%s" .repository (.tag | default $.root.Chart.AppVersion)) (not (empty .digest)) | quote }}
{{- end }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
startupProbe:
  httpGet: {path: /livez, port: metrics, scheme: HTTPS}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 30
livenessProbe:
  httpGet: {path: /livez, port: metrics, scheme: HTTPS}
  periodSeconds: 10
  timeoutSeconds: 15
  failureThreshold: 8
{{- with .values.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end -}}

{{/* The ServiceAccount and the PodDisruptionBudget that every component has. */}}
{{- define "accountAndBudget" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "name" . }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "labels" . | nindent 4 }}
automountServiceAccountToken: false
{{- if .values.podDisruptionBudget }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "name" . }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      {{- include "selectorLabels" . | nindent 6 }}
{{- end }}
{{- end -}}

{{/* Binds a (Cluster)Role to the component's account: "kind", "role" (its name) beside the usual. */}}
{{- define "binding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  name: {{ .role }}
  {{- if eq .kind "Role" }}
  namespace: {{ .root.Release.Namespace }}
  {{- end }}
  labels:
    {{- include "labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .role }}
subjects:
  - kind: ServiceAccount
    name: {{ include "name" . }}
    namespace: {{ .root.Release.Namespace }}
{{- end -}}
