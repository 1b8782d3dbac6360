package health

import (
	"encoding/json"
	"net/http"
	"strconv"

	"sluice/internal/model"
)

// weightHeader is by which load balancers learn how much traffic a node can
// take compared with others.
const weightHeader = "X-Load-Balancing-Endpoint-Weight"

// answer is what a health check node port says. Its form is an interface that
// load balancers rely on.
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
	_, _ = w.Write(body) // who went away does not want the answer
}
