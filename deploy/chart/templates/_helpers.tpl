{{- /* By these the DaemonSet finds its pods. They cannot change. */}}
{{- define "sluice.selector" -}}
app.kubernetes.io/name: sluice
{{- with .Values.serviceProxyName }}
sluice/service-proxy-name: {{ . | quote }}
{{- end }}
{{- end }}

{{- /* The name of the objects. A proxy with a name has that of its release, so that there can be
       several. */}}
{{- define "sluice.name" -}}
{{ if .Values.serviceProxyName }}{{ .Release.Name }}{{ else }}sluice{{ end }}
{{- end }}

{{- /* Whether another proxy serves the Services without the label. */}}
{{- define "sluice.beside" -}}
{{ if and .Values.serviceProxyName (not .Values.allServices) }}true{{ end }}
{{- end }}

{{- define "sluice.healthPort" -}}
{{ if include "sluice.beside" . }}10266{{ else }}10256{{ end }}
{{- end }}

{{- define "sluice.metricsPort" -}}
{{ if include "sluice.beside" . }}10269{{ else }}10249{{ end }}
{{- end }}

{{- /* The flags of which Services are served, and how. */}}
{{- define "sluice.served" -}}
{{- with .Values.serviceProxyName }}
- --service-proxy-name={{ . }}
{{- end }}
{{- if .Values.allServices }}
- --all-services
{{- end }}
{{- with .Values.directReturn }}
- --direct-return={{ . }}
{{- end }}
{{- end }}

{{- define "sluice.labels" -}}
{{ include "sluice.selector" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | trunc 63 | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
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

{{- /* The configuration without extraConfig. */}}
{{- define "sluice.base" -}}
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
metricsBindAddress: {{ if contains ":" .Values.bindAddress }}"[::]:{{ include "sluice.metricsPort" . }}"{{ else }}0.0.0.0:{{ include "sluice.metricsPort" . }}{{ end }}
{{- end }}
# The score that the kubelet gives to pods of class system-node-critical. To go lower
# would need the capability SYS_RESOURCE.
oomScoreAdj: -997
{{- end }}

{{- define "sluice.config" -}}
{{- if .Values.extraConfig }}
{{- mustMergeOverwrite (include "sluice.base" . | fromYaml) (deepCopy .Values.extraConfig) | toYaml }}
{{- else }}
{{- include "sluice.base" . }}
{{- end }}
{{- end }}

{{- define "sluice.windowsSelector" -}}
app.kubernetes.io/name: sluice-windows
{{- end }}

{{- define "sluice.windowsLabels" -}}
{{ include "sluice.labels" . | replace "app.kubernetes.io/name: sluice" "app.kubernetes.io/name: sluice-windows" }}
{{- end }}

{{- /* The configuration of nodes with Windows. It has nothing of extraConfig, which is about Linux. */}}
{{- define "sluice.windowsBase" -}}
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: kernelspace
bindAddress: {{ .Values.bindAddress | quote }}
{{- if .Values.monitoring.expose }}
metricsBindAddress: {{ if contains ":" .Values.bindAddress }}"[::]:10249"{{ else }}0.0.0.0:10249{{ end }}
{{- end }}
winkernel:
  networkName: {{ .Values.windows.networkName | quote }}
  enableDSR: {{ .Values.windows.enableDSR }}
{{- end }}

{{- define "sluice.windowsConfig" -}}
{{- mustMergeOverwrite (include "sluice.windowsBase" . | fromYaml) (deepCopy .Values.windows.extraConfig) | toYaml }}
{{- end }}

{{- /* Refuses values that cannot work on Windows. */}}
{{- define "sluice.checkWindows" -}}
{{- if not .Values.windows.networkName }}
{{- fail "windows.networkName: pods are in a network of the Host Networking Service, and it is not known which one (set it to a name that Get-HnsNetwork lists)" }}
{{- end }}
{{- if .Values.serviceProxyName }}
{{- fail "windows.enabled: with serviceProxyName there is no proxy for Windows (install the chart once more without it)" }}
{{- end }}
{{- range $field := list "mode" "bindAddress" "metricsBindAddress" "hostnameOverride" "healthzBindAddress" "windowsRunAsService" }}
{{- if hasKey $.Values.windows.extraConfig $field }}
{{- fail (printf "windows.extraConfig.%s: other parts of the chart depend on it (leave it out)" $field) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* What of the configuration needs new pods. */}}
{{- define "sluice.restart" -}}
{{- $config := include "sluice.config" . | fromYaml }}
{{- range $path := .Files.Lines "files/restart.txt" }}
{{- if and $path (not (hasPrefix "#" $path)) }}
{{- $value := $config }}
{{- range $name := splitList "." $path }}
{{- if kindIs "map" $value }}
{{- $value = get $value $name }}
{{- else }}
{{- $value = "" }}
{{- end }}
{{- end }}
{{ $path }}={{ toJson $value }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Refuses values that cannot work. The schema has those that need no explanation. */}}
{{- define "sluice.check" -}}
{{- $host := .Values.apiServer.host }}
{{- if regexMatch "^[^:]*:[^:]*$" $host }}
{{- fail (printf "apiServer.host: %s has a port (set apiServer.host to %s, and apiServer.port)" $host (regexReplaceAll ":.*" $host "")) }}
{{- end }}
{{- if hasPrefix "[" $host }}
{{- fail (printf "apiServer.host: %s has brackets (write the IPv6 address alone, and set apiServer.port)" $host) }}
{{- end }}
{{- range $field, $value := dict "mode" "mode" "clusterCIDR" "clusterCIDR" "nodePortAddresses" "nodePortAddresses" "bindAddress" "bindAddress" "metricsBindAddress" "monitoring.expose" }}
{{- if hasKey $.Values.extraConfig $field }}
{{- fail (printf "extraConfig.%s: other parts of the chart depend on it (set the value %s instead)" $field $value) }}
{{- end }}
{{- end }}
{{- range $field, $why := dict "hostnameOverride" "the name of the Node is a flag, which wins" "healthzBindAddress" "the probes of the pods need the default port of the node" }}
{{- if hasKey $.Values.extraConfig $field }}
{{- fail (printf "extraConfig.%s: %s (leave it out)" $field $why) }}
{{- end }}
{{- end }}
{{- if and .Values.runAsNonRoot (eq .Values.mode "iptables") }}
{{- fail "runAsNonRoot is not possible in iptables mode: the iptables commands need root" }}
{{- end }}
{{- if and .Values.monitoring.expose (dig "rollingUpdate" "maxSurge" 0 .Values.updateStrategy) }}
{{- fail "updateStrategy.rollingUpdate.maxSurge: with monitoring.expose the pods have a host port, which two pods of a node cannot share (set only one of them)" }}
{{- end }}
{{- if and .Values.allServices (not .Values.serviceProxyName) }}
{{- fail "allServices: all Services are served without it (leave it out, or set serviceProxyName)" }}
{{- end }}
{{- if and (include "sluice.beside" .) (not (has .Values.mode (list "nftables" "userspace"))) }}
{{- fail (printf "mode: in %s mode a proxy cannot serve a node beside another one (set mode to nftables or userspace, or leave out serviceProxyName)" .Values.mode) }}
{{- end }}
{{- if and .Values.directReturn (or (ne .Values.mode "nftables") (include "sluice.beside" .)) }}
{{- fail "directReturn: only in nftables mode, and for the only kube-proxy of the nodes (leave it out)" }}
{{- end }}
{{- $other := lookup "apps/v1" "DaemonSet" "kube-system" "kube-proxy" }}
{{- if and $other (not .Values.beside) (not (include "sluice.beside" .)) (dig "status" "desiredNumberScheduled" 1 $other | int) (ne (dig "metadata" "annotations" "meta.helm.sh/release-name" "" $other) .Release.Name) }}
{{- fail "there is a DaemonSet kube-proxy in namespace kube-system, and two proxies on a node are in each other's way: delete it, or see docs/install.md for how to move node by node, with beside=true" }}
{{- end }}
{{- end }}
