{{- define "remuda.name" -}}
{{- default .Release.Name .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "remuda.selector" -}}
app.kubernetes.io/name: remuda
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "remuda.labels" -}}
{{ include "remuda.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- end -}}

{{- define "remuda.configuration" -}}
advertise: {{ required "advertise: under which HOST[:PORT] machines, agents and people reach the server" .Values.advertise | quote }}
log-format: json
{{- if .Values.config }}
{{ toYaml .Values.config }}
{{- end }}
{{- end -}}
