{{/* KubeSchedulerConfiguration: the chart's own part, and the user's over it. The Lease is the one that RBAC grants. */}}
{{- define "scheduler.configuration" -}}
{{- $lease := dict "leaderElect" true "resourceName" (include "name" .) "resourceNamespace" .root.Release.Namespace -}}
{{- $own := dict "leaderElection" $lease "clientConnection" (dict "qps" -1 "burst" 100) -}}
{{- $head := dict "apiVersion" "kubescheduler.config.k8s.io/v1" "kind" "KubeSchedulerConfiguration" -}}
{{- toYaml (mergeOverwrite $own (deepCopy .values.configuration) $head) -}}
{{- end -}}
