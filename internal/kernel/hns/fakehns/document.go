package fakehns

// Access to documents whose shape a client decides on.

func text(d Document, field string) string { s, _ := d[field].(string); return s }
func number(d Document, field string) int  { f, _ := d[field].(float64); return int(f) }

func list(v any) []any { l, _ := v.([]any); return l }

func documents(v any) (out []Document) {
	for _, e := range list(v) {
		if d, ok := e.(Document); ok {
			out = append(out, d)
		}
	}
	return out
}

func texts(v any) (out []string) {
	for _, e := range list(v) {
		if s, ok := e.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

func addresses(endpoint Document) (ips []string) {
	for _, c := range documents(endpoint["IpConfigurations"]) {
		ips = append(ips, text(c, "IpAddress"))
	}
	return ips
}
