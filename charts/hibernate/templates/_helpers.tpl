{{/* The image of a program: (list $ NAME VALUES). */}}
{{- define "hibernate.image" -}}
{{- $images := (index . 0).Values.images -}}
{{- $tag := $images.tag | default (printf "v%s" (index . 0).Chart.AppVersion) -}}
{{- with $images.registry }}{{ trimSuffix "/" . }}/{{ end }}{{ index . 1 }}
{{- with (index . 2).digest }}@{{ . }}{{ else }}:{{ $tag }}{{ end }}
{{- end }}

{{/* Where the Pods of a program run, and who pulls their image: (list $ VALUES). */}}
{{- define "hibernate.placement" -}}
{{- $values := index . 1 -}}
{{- range $key := list "nodeSelector" "tolerations" "affinity" }}
{{- with index $values $key }}
      {{ $key }}: {{- toYaml . | nindent 8 }}
{{- end }}
{{- end }}
{{- with (index . 0).Values.images.pullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
{{- end }}
{{- end }}
