{{/* What a schema cannot say. Everything found wrong is reported together, each with what to do. */}}
{{- define "bridge.validate" -}}
{{- $wrong := list -}}

{{- range $path, $node := dict "kafka.sasl" .Values.kafka.sasl "kafka.sasl.oauth" .Values.kafka.sasl.oauth "kafka.tls" .Values.kafka.tls "signature" .Values.signature -}}
{{- range $name := list "password" "clientSecret" "keyPassword" "keys" "secret" "secrets" -}}
{{- if hasKey $node $name -}}
{{- $wrong = append $wrong (printf "%s.%s: a secret is never written into values; put it into a Secret and name that in existingSecret" $path $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $path := list "kafka.sasl.password" "kafka.sasl.oauth.client_secret" "kafka.tls.key_password" "schema_registry.password" "schema_registry.bearer_token" -}}
{{- $node := $.Values.config -}}
{{- range splitList "." $path -}}
{{- if kindIs "map" $node -}}{{- $node = index $node . -}}{{- else -}}{{- $node = dict -}}{{- end -}}
{{- end -}}
{{- if and $node (not (kindIs "map" $node)) -}}
{{- $wrong = append $wrong (printf "config.%s: a secret is never written into values; use {file: /path} with extraVolumes, or {env: NAME} with extraEnv and a secretKeyRef" $path) -}}
{{- end -}}
{{- end -}}
{{- range $id, $key := dig "signature" "keys" dict .Values.config -}}
{{- if not (kindIs "map" $key) -}}
{{- $wrong = append $wrong (printf "config.signature.keys.%s: a secret is never written into values; use signature.existingSecret and signature.keyIds" $id) -}}
{{- end -}}
{{- end -}}

{{- $shutdown := include "bridge.shutdownSeconds" . | int64 -}}
{{- $grace := include "bridge.gracePeriod" . | int64 -}}
{{- if le $grace $shutdown -}}
{{- $wrong = append $wrong (printf "terminationGracePeriodSeconds: %d s is not longer than config.shutdown.timeout (%d s): Kubernetes would kill the bridge while it still drains; take at least %d, or leave it empty" $grace $shutdown (add $shutdown 5)) -}}
{{- end -}}

{{- range $workload := include "bridge.workloads" . | fromYamlArray -}}
{{- $where := ternary "" (printf "%s." $workload.component) (eq $workload.component "bridge") -}}
{{- with $workload.values -}}
{{- if .keda.enabled -}}
{{- if eq $.Values.kafka.sasl.mechanism "OAUTHBEARER" -}}
{{- $wrong = append $wrong (printf "%skeda.enabled: KEDA takes the client id and the token endpoint for OAUTHBEARER from a Secret of its own shape; leave it false and write the ScaledObject in extraManifests" $where) -}}
{{- end -}}
{{- if gt (.keda.maxReplicaCount | int64) ($.Values.partitions | int64) -}}
{{- $wrong = append $wrong (printf "%skeda.maxReplicaCount: %d replicas for %d partitions: a partition is read by one replica, the rest would idle; lower it, or raise partitions if the topics have more" $where (.keda.maxReplicaCount | int64) ($.Values.partitions | int64)) -}}
{{- end -}}
{{- if gt (.keda.minReplicaCount | int64) (.keda.maxReplicaCount | int64) -}}
{{- $wrong = append $wrong (printf "%skeda.minReplicaCount: %d is more than maxReplicaCount (%d)" $where (.keda.minReplicaCount | int64) (.keda.maxReplicaCount | int64)) -}}
{{- end -}}
{{- else if gt (.replicaCount | int64) ($.Values.partitions | int64) -}}
{{- $wrong = append $wrong (printf "%sreplicaCount: %d replicas for %d partitions: a partition is read by one replica, the rest would idle; lower it, or raise partitions if the topics have more" $where (.replicaCount | int64) ($.Values.partitions | int64)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- with .Values.kafka.sasl -}}
{{- if and .mechanism (ne .mechanism "OAUTHBEARER") -}}
{{- if not .existingSecret -}}{{- $wrong = append $wrong (printf "kafka.sasl.existingSecret: %s needs a Secret with the password" .mechanism) -}}{{- end -}}
{{- if not (or .username .usernameKey) -}}{{- $wrong = append $wrong (printf "kafka.sasl.username: %s needs username or usernameKey" .mechanism) -}}{{- end -}}
{{- else if eq .mechanism "OAUTHBEARER" -}}
{{- if not (or .oauth.tokenFile (and .oauth.tokenEndpoint .oauth.clientId .existingSecret)) -}}
{{- $wrong = append $wrong "kafka.sasl.oauth: OAUTHBEARER needs tokenFile, or tokenEndpoint, clientId and kafka.sasl.existingSecret" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with .Values.kafka.tls -}}
{{- if and .certKey (or (not .keyKey) (not .existingSecret)) -}}
{{- $wrong = append $wrong "kafka.tls.certKey: a client certificate needs existingSecret and keyKey too" -}}
{{- end -}}
{{- if and (not .enabled) .existingSecret -}}
{{- $wrong = append $wrong "kafka.tls.existingSecret: is of no use while kafka.tls.enabled is false" -}}
{{- end -}}
{{- end -}}
{{- with .Values.signature -}}
{{- if and (ne .mode "off") (or (not .existingSecret) (not .keyIds)) -}}
{{- $wrong = append $wrong (printf "signature.existingSecret: mode %s needs existingSecret and keyIds" .mode) -}}
{{- end -}}
{{- end -}}
{{- with (dig "topics" "create" "partitions" nil .Values.config) -}}
{{- if ne (. | int64) ($.Values.partitions | int64) -}}
{{- $wrong = append $wrong (printf "config.topics.create.partitions: is set by partitions (%d); leave it out" ($.Values.partitions | int64)) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.serviceMonitor.enabled .Values.podMonitor.enabled -}}
{{- $wrong = append $wrong "podMonitor.enabled: a ServiceMonitor and a PodMonitor would scrape everything twice; choose one" -}}
{{- end -}}
{{- $alerts := list -}}
{{- range (.Files.Get "files/rules.yaml" | fromYaml).groups -}}{{- range .rules -}}{{- $alerts = append $alerts .alert -}}{{- end -}}{{- end -}}
{{- range concat .Values.prometheusRule.disabled (keys .Values.prometheusRule.overrides) -}}
{{- if not (has . $alerts) -}}{{- $wrong = append $wrong (printf "prometheusRule: there is no alert %s; there are %s" . (join ", " $alerts)) -}}{{- end -}}
{{- end -}}

{{- if $wrong -}}
{{- fail (printf "\n\nThese values cannot work:\n  - %s\n" (join "\n  - " $wrong)) -}}
{{- end -}}
{{- end -}}
