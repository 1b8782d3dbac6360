package httpserver

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
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

// SameOrigin serves a request only if a page of this server has sent it, by what browsers say
// about that. So no website can have something done through the browser of a visitor. One that
// says nothing is refused as well, unlike by http.CrossOriginProtection: it is not our page.
func SameOrigin(page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if why := foreign(r); why != "" {
			http.Error(w, "This is done for the page itself only: "+why+".", http.StatusForbidden)
			return
		}
		page.ServeHTTP(w, r)
	})
}

// foreign returns why a request was not sent by a page of this server, "" if it was.
func foreign(r *http.Request) string {
	site, origin := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Origin")
	at, err := url.Parse(origin)
	switch {
	case site == "same-origin":
	case site != "":
		return fmt.Sprintf("by Sec-Fetch-Site, which is %q, the request comes from elsewhere", site)
	case origin == "":
		return "the request has neither Sec-Fetch-Site nor Origin, one of which browsers send"
	case err != nil || at.Host == "" || !strings.EqualFold(at.Host, r.Host):
		return fmt.Sprintf("by Origin, which is %q, the request comes from elsewhere", origin)
	}
	return ""
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
