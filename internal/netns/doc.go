// Package netns runs code in another network namespace.
package netns
