package health

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// weightHeader gives load balancers the weight of this node relative to others.
const weightHeader = "X-Load-Balancing-Endpoint-Weight"

// answer is the response of a health check node port. Load balancers rely on
// its form.
type answer struct {
	Service             serviceName `json:"service"`
	LocalEndpoints      int         `json:"localEndpoints"`
	ServiceProxyHealthy bool        `json:"serviceProxyHealthy"`
}

type serviceName struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

func (a answer) status() int {
	if a.LocalEndpoints > 0 && a.ServiceProxyHealthy {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}

func (a answer) write(w http.ResponseWriter) {
	body, err := json.MarshalIndent(a, "", "\t")
	w.Header().Set(weightHeader, strconv.Itoa(a.LocalEndpoints))
	writeJSON(w, a.status(), body, err)
}

// writeJSON writes a response, and returns its status.
func writeJSON(w http.ResponseWriter, status int, body []byte, err error) int {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return http.StatusInternalServerError
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may be gone
	return status
}
