// Package question is the table of the questions that a running proxy answers. Each is a
// command of kube-proxy, a page of the control socket and a command of the plugin of kubectl,
// which all have its query, its reply and its text from here.
//
// A query is posted to its page as JSON. It can also be in the URL of a GET, by the names of
// its flags, which is the only way that earlier builds know.
package question
