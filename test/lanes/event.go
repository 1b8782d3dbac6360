//go:build linux

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
)

// event is a line of go test -json, as go doc test2json describes it.
type event struct {
	Action     string
	Package    string
	ImportPath string // of what is built
	Test       string
	Elapsed    float64
	Output     string
}

// readEvents reads the output of go test -json. What is no event, such as an error of go
// itself, is handed on as output without a package.
func readEvents(r io.Reader, take func(event)) error {
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			take(parse(line))
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func parse(line []byte) event {
	var e event
	if !bytes.HasPrefix(line, []byte("{")) || json.Unmarshal(line, &e) != nil || e.Action == "" {
		return event{Action: "output", Output: string(line)}
	}
	return e
}
