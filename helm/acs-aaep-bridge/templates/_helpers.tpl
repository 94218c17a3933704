{{/* Names, labels, and the small computations that several objects need. */}}

{{- define "bridge.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* At most 45 characters: "-normalize", "-lifecycle" and the pods' own suffixes must fit after it. */}}
{{- define "bridge.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 45 | trimSuffix "-" -}}
{{- else if contains (include "bridge.name" .) .Release.Name -}}
{{- .Release.Name | trunc 45 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "bridge.name" .) | trunc 45 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What never changes over an object's life; with a component it selects that workload's pods. Takes {root, component}. */}}
{{- define "bridge.selectorLabels" -}}
app.kubernetes.io/name: {{ include "bridge.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end -}}

{{- define "bridge.labels" -}}
{{ include "bridge.selectorLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "bridge.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "bridge.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "bridge.image" -}}
{{- $registry := default .Values.image.registry (dig "imageRegistry" "" .Values.global) -}}
{{- $path := .Values.image.repository -}}
{{- if $registry -}}{{- $path = printf "%s/%s" $registry $path -}}{{- end -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" $path .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" $path (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* A duration as the configuration writes it (250ms, 20s, 5m, 24h, 7d) in whole seconds, rounded up. */}}
{{- define "bridge.seconds" -}}
{{- $text := toString . -}}
{{- $number := regexFind "^[0-9]+" $text | default "0" | int64 -}}
{{- $unit := regexFind "[a-z]+$" $text -}}
{{- if eq $unit "ms" -}}
{{- div (add $number 999) 1000 -}}
{{- else -}}
{{- mul $number (get (dict "s" 1 "m" 60 "h" 3600 "d" 86400) $unit | default 1) -}}
{{- end -}}
{{- end -}}

{{- define "bridge.shutdownSeconds" -}}
{{- include "bridge.seconds" (dig "shutdown" "timeout" "20s" .Values.config) -}}
{{- end -}}

{{- define "bridge.gracePeriod" -}}
{{- if kindIs "invalid" .Values.terminationGracePeriodSeconds -}}
{{- add (include "bridge.shutdownSeconds" . | int64) 10 -}}
{{- else -}}
{{- .Values.terminationGracePeriodSeconds | int64 -}}
{{- end -}}
{{- end -}}

{{- define "bridge.port" -}}
{{- dig "http" "port" 9404 .Values.config | int64 -}}
{{- end -}}

{{- define "bridge.groupPrefix" -}}
{{- dig "kafka" "group_prefix" "acs-aaep-bridge" .Values.config -}}
{{- end -}}

{{/* The workloads as YAML: a list of {component, stages, values}, the values being those of this workload alone. */}}
{{- define "bridge.workloads" -}}
{{- if eq .Values.stages "apart" }}
{{- range $stage := list "normalize" "lifecycle" }}
- component: {{ $stage }}
  suffix: -{{ $stage }}
  stages: [{{ $stage }}]
  values: {{ mergeOverwrite (deepCopy $.Values) (deepCopy (index $.Values $stage)) | toJson }}
{{- end }}
{{- else }}
- component: bridge
  suffix: ""
  stages: [normalize, lifecycle]
  values: {{ .Values | toJson }}
{{- end }}
{{- end -}}
