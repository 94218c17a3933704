{{/*
The configuration file: `config` as given, with what follows from the chart's own values on top. Secrets appear as the
names of mounted files only.
*/}}
{{- define "bridge.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $kafka := dict "bootstrap_servers" .Values.kafka.bootstrapServers -}}
{{- with .Values.kafka.tls -}}
{{- if .enabled -}}
{{- $tls := dict "enabled" true "check_hostname" .checkHostname -}}
{{- if and .existingSecret .caKey -}}{{- $_ := set $tls "ca_file" (printf "/etc/acs-aaep-bridge/tls/%s" .caKey) -}}{{- end -}}
{{- if .certKey -}}
{{- $_ := set $tls "cert_file" (printf "/etc/acs-aaep-bridge/tls/%s" .certKey) -}}
{{- $_ := set $tls "key_file" (printf "/etc/acs-aaep-bridge/tls/%s" .keyKey) -}}
{{- end -}}
{{- $_ := set $kafka "tls" $tls -}}
{{- end -}}
{{- end -}}
{{- with .Values.kafka.sasl -}}
{{- if eq .mechanism "OAUTHBEARER" -}}
{{- $oauth := dict -}}
{{- if .oauth.tokenFile -}}
{{- $_ := set $oauth "token_file" .oauth.tokenFile -}}
{{- else -}}
{{- $_ := set $oauth "token_endpoint" .oauth.tokenEndpoint -}}
{{- $_ := set $oauth "client_id" .oauth.clientId -}}
{{- $_ := set $oauth "client_secret" (dict "file" (printf "/etc/acs-aaep-bridge/sasl/%s" .oauth.clientSecretKey)) -}}
{{- if .oauth.scope -}}{{- $_ := set $oauth "scope" .oauth.scope -}}{{- end -}}
{{- end -}}
{{- $_ := set $kafka "sasl" (dict "mechanism" .mechanism "oauth" $oauth) -}}
{{- else if .mechanism -}}
{{- $sasl := dict "mechanism" .mechanism "password" (dict "file" (printf "/etc/acs-aaep-bridge/sasl/%s" .passwordKey)) -}}
{{- $_ := set $kafka "sasl" $sasl -}}
{{- end -}}
{{- end -}}
{{- $ours := dict "kafka" $kafka "topics" (dict "create" (dict "partitions" (.Values.partitions | int64))) -}}
{{- with .Values.signature -}}
{{- if ne .mode "off" -}}
{{- $keys := dict -}}
{{- range .keyIds -}}{{- $_ := set $keys . (dict "file" (printf "/etc/acs-aaep-bridge/signature/%s" .)) -}}{{- end -}}
{{- $_ := set $ours "signature" (dict "mode" .mode "keys" $keys) -}}
{{- end -}}
{{- end -}}
{{- toYaml (mergeOverwrite $config $ours) -}}
{{- end -}}

{{/* Volumes with the configuration and the secrets. Takes {root, configMap}. */}}
{{- define "bridge.volumes" -}}
- name: config
  configMap:
    name: {{ .configMap }}
- name: tmp
  emptyDir: {}
{{- with .root.Values.kafka.tls }}
{{- if and .enabled .existingSecret }}
- name: tls
  secret:
    secretName: {{ .existingSecret }}
    defaultMode: 0440
{{- end }}
{{- end }}
{{- with .root.Values.kafka.sasl }}
{{- if and .mechanism .existingSecret }}
- name: sasl
  secret:
    secretName: {{ .existingSecret }}
    defaultMode: 0440
{{- end }}
{{- end }}
{{- with .root.Values.signature }}
{{- if ne .mode "off" }}
- name: signature
  secret:
    secretName: {{ .existingSecret }}
    defaultMode: 0440
{{- end }}
{{- end }}
{{- end -}}

{{- define "bridge.volumeMounts" -}}
- name: config
  mountPath: /etc/acs-aaep-bridge/config
  readOnly: true
- name: tmp
  mountPath: /tmp
{{- if and .Values.kafka.tls.enabled .Values.kafka.tls.existingSecret }}
- name: tls
  mountPath: /etc/acs-aaep-bridge/tls
  readOnly: true
{{- end }}
{{- if and .Values.kafka.sasl.mechanism .Values.kafka.sasl.existingSecret }}
- name: sasl
  mountPath: /etc/acs-aaep-bridge/sasl
  readOnly: true
{{- end }}
{{- if ne .Values.signature.mode "off" }}
- name: signature
  mountPath: /etc/acs-aaep-bridge/signature
  readOnly: true
{{- end }}
{{- end -}}

{{/* The user name travels in the environment: the configuration takes it from there, and so does KEDA. */}}
{{- define "bridge.env" -}}
{{- with .Values.kafka.sasl -}}
{{- if and .mechanism (ne .mechanism "OAUTHBEARER") }}
- name: BRIDGE_KAFKA__SASL__USERNAME
{{- if .usernameKey }}
  valueFrom:
    secretKeyRef:
      name: {{ .existingSecret }}
      key: {{ .usernameKey }}
{{- else }}
  value: {{ .username | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}
