package config

import (
	"fmt"
	"strconv"
	"time"
)

const boolType = "bool"

// shared is the value of a flag that sets several fields. Until the flag is set,
// the fields keep their values; the first one is shown.
type shared[T any] struct {
	kind   string
	parse  func(string) (T, error)
	fields []*T
}

func bools(fields ...*bool) *shared[bool] {
	return &shared[bool]{boolType, strconv.ParseBool, fields}
}

func durations(fields ...*time.Duration) *shared[time.Duration] {
	return &shared[time.Duration]{"duration", time.ParseDuration, fields}
}

func numbers(fields ...*int32) *shared[int32] {
	parse := func(s string) (int32, error) {
		n, err := strconv.ParseInt(s, 0, 32)
		return int32(n), err
	}
	return &shared[int32]{"int32", parse, fields}
}

// Set is called by the flag parser.
func (s *shared[T]) Set(text string) error {
	v, err := s.parse(text)
	if err != nil {
		return err
	}
	for _, field := range s.fields {
		*field = v
	}
	return nil
}

func (s *shared[T]) String() string {
	if len(s.fields) == 0 {
		return ""
	}
	return fmt.Sprint(*s.fields[0])
}

// Type returns the word for the value in the help text.
func (s *shared[T]) Type() string { return s.kind }
