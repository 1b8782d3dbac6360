package httpserver

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// OwnHosts serves a page only if the Host of the request is an IP address, localhost or
// one of the names. Otherwise a website could resolve its own name to this machine (DNS
// rebinding) and read the page through the browser of a visitor who has access.
func OwnHosts(page http.Handler, names ...string) http.Handler {
	own := map[string]bool{"localhost": true}
	for _, name := range names {
		own[plainName(name)] = true
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isOwn(r.Host, own) {
			http.Error(w, fmt.Sprintf("%q is not a name of this proxy: so that no website can read this page by a browser, "+
				"it is shown by an IP address, localhost or the name of the node only", r.Host), http.StatusForbidden)
			return
		}
		page.ServeHTTP(w, r)
	})
}

// isOwn reports whether the Host of a request is an own one. Browsers always send it.
func isOwn(host string, own map[string]bool) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if host == "" || own[plainName(host)] {
		return true
	}
	_, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	return err == nil
}

// plainName normalizes a DNS name.
func plainName(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }
