// Package telemetry tells those who watch the cluster what the proxy does:
// metrics, the HTTP server that they and other pages are read from, and Events
// on the Node and on Services.
//
// What it promises:
//
//   - The metrics named kubeproxy_ have upstream's names, types, labels and
//     buckets; those named sluice_ are our own. A test pins all of them.
//   - Metrics tell what the engine tells: Updater listens to its commits, and
//     reads its status before each scrape.
//   - The engine never waits for an observer: what it calls here only counts.
//   - An Event says something new. What stays as it is is not said again, and
//     trouble with many objects at once does not flood the API server.
//
// Nothing here is global but what the libraries of Kubernetes keep in globals:
// the registry of the process, the level of logging and the SLI metrics.
package telemetry
