{{- define "sluice.labels" -}}
app.kubernetes.io/name: sluice
{{- end }}

{{- define "sluice.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "sluice.env" -}}
- name: NODE_NAME
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
# The API server itself. Kubernetes sets these to the Service "kubernetes", which works
# only once a proxy does.
- name: KUBERNETES_SERVICE_HOST
  value: {{ required "set apiServer.host to where the nodes reach the API server" .Values.apiServer.host | quote }}
- name: KUBERNETES_SERVICE_PORT
  value: {{ .Values.apiServer.port | quote }}
{{- end }}

{{- define "sluice.config" -}}
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: {{ .Values.mode }}
{{- if .Values.clusterCIDR }}
clusterCIDR: {{ .Values.clusterCIDR | quote }}
{{- else }}
detectLocalMode: NodeCIDR
{{- end }}
nodePortAddresses: {{ toJson .Values.nodePortAddresses }}
bindAddress: {{ .Values.bindAddress | quote }}
{{- if .Values.monitoring.expose }}
metricsBindAddress: {{ if contains ":" .Values.bindAddress }}"[::]:10249"{{ else }}0.0.0.0:10249{{ end }}
{{- end }}
# The score that the kubelet gives to pods of class system-node-critical. To go lower
# would need the capability SYS_RESOURCE.
oomScoreAdj: -997
{{- end }}
