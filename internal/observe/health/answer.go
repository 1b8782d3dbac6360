package health

import (
	"encoding/json"
	"net/http"
	"strconv"

	"sluice/internal/model"
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

func newAnswer(service model.Name, localEndpoints int, healthy bool) answer {
	return answer{serviceName(service), localEndpoints, healthy}
}

func (a answer) status() int {
	if a.LocalEndpoints > 0 && a.ServiceProxyHealthy {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}

func (a answer) write(w http.ResponseWriter) {
	body, err := json.MarshalIndent(a, "", "\t")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set(weightHeader, strconv.Itoa(a.LocalEndpoints))
	w.WriteHeader(a.status())
	_, _ = w.Write(body) // the client may be gone
}
