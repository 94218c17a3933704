{{/* The pod of one workload. Takes {root, workload}. */}}
{{- define "bridge.podTemplate" -}}
{{- $root := .root -}}
{{- $workload := .workload -}}
{{- $labels := include "bridge.selectorLabels" (dict "root" $root "component" $workload.component) -}}
{{- with $workload.values -}}
metadata:
  labels:
    {{- $labels | nindent 4 }}
    {{- with .commonLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- with .podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    checksum/config: {{ include "bridge.config" $root | sha256sum }}
    {{- with .podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "bridge.serviceAccountName" $root }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  {{- with .image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  {{- with .priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  terminationGracePeriodSeconds: {{ include "bridge.gracePeriod" $root }}
  securityContext:
    {{- toYaml .podSecurityContext | nindent 4 }}
  {{- with .extraInitContainers }}
  initContainers:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: bridge
      image: {{ include "bridge.image" $root | quote }}
      imagePullPolicy: {{ .image.pullPolicy }}
      args:
        - run
        - --config
        - /etc/acs-aaep-bridge/config/bridge.yaml
        {{- if eq (len $workload.stages) 1 }}
        - --stage
        - {{ first $workload.stages }}
        {{- end }}
      {{- $env := include "bridge.env" $root | trim }}
      {{- if or $env .staticMembership.enabled .extraEnv }}
      env:
        {{- with $env }}
        {{- . | nindent 8 }}
        {{- end }}
        {{- if .staticMembership.enabled }}
        - name: BRIDGE_KAFKA__GROUP_INSTANCE_ID
          valueFrom:
            fieldRef:
              fieldPath: metadata.name
        {{- end }}
        {{- with .extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- end }}
      {{- with .extraEnvFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        - name: http-metrics
          containerPort: {{ include "bridge.port" $root }}
          protocol: TCP
      startupProbe:
        httpGet: {path: /livez, port: http-metrics}
        {{- toYaml .startupProbe | nindent 8 }}
      livenessProbe:
        httpGet: {path: /livez, port: http-metrics}
        {{- toYaml .livenessProbe | nindent 8 }}
      readinessProbe:
        httpGet: {path: /readyz, port: http-metrics}
        {{- toYaml .readinessProbe | nindent 8 }}
      resources:
        {{- toYaml .resources | nindent 8 }}
      securityContext:
        {{- toYaml .containerSecurityContext | nindent 8 }}
      volumeMounts:
        {{- include "bridge.volumeMounts" $root | nindent 8 }}
        {{- with .extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    {{- with .extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    {{- include "bridge.volumes" (dict "root" $root "configMap" (include "bridge.fullname" $root)) | nindent 4 }}
    {{- with .extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- range . }}
    {{- $constraint := . }}
    {{- if not (hasKey $constraint "labelSelector") }}
    {{- $constraint = merge (dict "labelSelector" (dict "matchLabels" (fromYaml $labels))) $constraint }}
    {{- end }}
    - {{- toYaml $constraint | nindent 6 }}
    {{- end }}
  {{- end }}
{{- end -}}
{{- end -}}
