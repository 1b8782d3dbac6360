// Package backoff computes when to retry: soon at first, and with exponentially
// growing pauses as failures go on.
package backoff
