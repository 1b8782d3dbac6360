package question

import (
	"context"
	"io"
	"net/url"

	"github.com/spf13/pflag"

	"sluice/internal/answer/control"
)

// Question is one that a running proxy answers.
type Question[Query, Reply any] struct {
	// Name is the name of the command, and of the page.
	Name string
	// Flags adds the fields of a Query, by their names in JSON. It is nil if the command makes
	// up the Query by itself.
	Flags func(*pflag.FlagSet, *Query)
	// Argument is the flag that is the argument of the command, "" if there is none.
	Argument string
	// Check returns what is wrong with a Query; nil if nothing can be.
	Check func(*Query) error
	// Write writes a Reply in words.
	Write func(io.Writer, *Reply) error
	// IsNo reports whether a Reply is not what its reader hopes for, which the exit code
	// says; nil if that cannot be.
	IsNo func(*Query, *Reply) bool
	// Field is one that every Reply has, by its name in JSON.
	Field string
	// MaxBytes limits the Query in JSON, if it may be large.
	MaxBytes int64
}

func (q *Question[Query, Reply]) page() string { return "/v1/" + q.Name }

// Fields returns the fields of a query as flags.
func (q *Question[Query, Reply]) Fields(query *Query) *pflag.FlagSet {
	fields := pflag.NewFlagSet(q.Name, pflag.ContinueOnError)
	fields.SortFlags = false
	if q.Flags != nil {
		q.Flags(fields, query)
	}
	return fields
}

// Ask asks a proxy.
func (q *Question[Query, Reply]) Ask(ctx context.Context, c *control.Client, query *Query) (*Reply, error) {
	if err := q.Validate(query); err != nil {
		return nil, err
	}
	reply := new(Reply)
	return reply, c.Ask(ctx, q.page(), query, reply)
}

// Serve has a proxy answer the question.
func (q *Question[Query, Reply]) Serve(s *control.Server, answer func(context.Context, *Query) (*Reply, error)) {
	page := control.Page(q.parser(), func(ctx context.Context, query *Query) (any, error) {
		if err := q.Validate(query); err != nil {
			return nil, control.BadRequest(err)
		}
		return answer(ctx, query)
	})
	if q.MaxBytes > 0 {
		s.HandleLarge(q.page(), q.MaxBytes, page)
	} else {
		s.Handle(q.page(), page)
	}
}

// Validate returns what is wrong with a query.
func (q *Question[Query, Reply]) Validate(query *Query) error {
	if q.Check == nil {
		return nil
	}
	return q.Check(query)
}

// parser returns what reads a query from a URL, nil if it cannot be in one.
func (q *Question[Query, Reply]) parser() func(url.Values, *Query) error {
	if q.Flags == nil {
		return nil
	}
	return func(values url.Values, query *Query) error {
		fields := q.Fields(query)
		fields.SetOutput(io.Discard)
		*query = *new(Query) // defaults are for the command line
		for name := range values {
			if value := values.Get(name); value != "" {
				if err := fields.Set(name, value); err != nil {
					return err
				}
			}
		}
		return nil
	}
}
