// Package telemetry has the metrics of the proxy, the HTTP server for them and for
// other pages, and Events on the Node and on Services.
//
// Guarantees:
//
//   - Metrics named kubeproxy_ have upstream's names, types, labels and buckets;
//     those named sluice_ are our own. A test pins all of them.
//   - Metrics follow the engine: Updater observes its commits, and reads its status
//     before each scrape.
//   - The engine never waits for an observer.
//   - An Event is recorded once, until something changes, and problems of many
//     objects at once do not flood the API server.
//
// Nothing here is global but the globals of Kubernetes libraries: the registry of the
// process, the log level and the SLI metrics.
package telemetry
