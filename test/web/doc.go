// Package web tests the page of the real proxy in a real browser: the proxy runs
// on a node of the lab, with real traffic, and the browser beside it.
package web
