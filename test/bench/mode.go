//go:build linux

package main

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"

	"sluice/internal/dataplane"
	"sluice/test/lab/scenario"
)

// modeOf returns the mode of that name, in one of its variants.
func modeOf(name string) (scenario.Mode, error) {
	m, ok := scenario.Modes[name]
	if !ok {
		return m, fmt.Errorf("unknown mode %q: have %v", name, scenario.ModeNames())
	}
	return m, nil
}

// open opens the dataplane of a mode in this network namespace.
func open(name string) (dataplane.Dataplane, error) {
	m, err := modeOf(name)
	if err != nil {
		return nil, err
	}
	return m.Open(context.Background(), dataplane.Options{Logger: logr.Discard(), Variant: m.Variant})
}
