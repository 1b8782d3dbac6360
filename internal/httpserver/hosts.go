package httpserver

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// OwnHosts shows a page only to those who ask for it by an IP address, by localhost,
// or by one of the names. A website that has its own name lead to this machine (DNS
// rebinding) could otherwise read the page with the browser of somebody who may see
// it: the browser takes it for a page of that website.
func OwnHosts(page http.Handler, names ...string) http.Handler {
	own := map[string]bool{"localhost": true}
	for _, name := range names {
		own[plainName(name)] = true
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isOwn(r.Host, own) {
			http.Error(w, fmt.Sprintf("%q is no name of this proxy: so that no website can read this page by a browser, "+
				"it is shown by an IP address, localhost or the name of the node only", r.Host), http.StatusForbidden)
			return
		}
		page.ServeHTTP(w, r)
	})
}

// isOwn tells whether the Host of a request is one of ours. Browsers always send one.
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

// plainName is a name of DNS in the form by which names are compared.
func plainName(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }
