package hns

import (
	"encoding/json"
	"fmt"
	"os"
)

// Kind is a kind of object, by the name that it has in the names of functions.
type Kind string

// The kinds of objects.
const (
	Networks      Kind = "Network"
	Endpoints     Kind = "Endpoint"
	LoadBalancers Kind = "LoadBalancer"
)

// Handle is an object that was opened. It is closed after use.
type Handle uintptr

// ABI are the functions of the service. Errors are Codes.
type ABI interface {
	Enumerate(k Kind, query string) (ids string, err error)
	Open(k Kind, id GUID) (Handle, error)
	// Create creates an object; an endpoint in a network.
	Create(k Kind, network Handle, id GUID, settings string) (Handle, error)
	Query(k Kind, h Handle, query string) (properties string, err error)
	Modify(k Kind, h Handle, settings string) error
	Delete(k Kind, id GUID) error
	Close(k Kind, h Handle) error
	// Call calls the older interface, of which only the version is of interest.
	Call(method, path, request string) (response string, err error)
}

// Client makes the calls in their order, and leaves no handle open.
type Client struct{ abi ABI }

// NewClient returns a Client of a service.
func NewClient(abi ABI) *Client { return &Client{abi} }

// Version is that of the service, on which depends what it can do.
type Version struct{ Major, Minor int }

func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// AtLeast reports whether a version is not older than another one.
func (v Version) AtLeast(major, minor int) bool {
	return v.Major > major || v.Major == major && v.Minor >= minor
}

// ModifiesLoadBalancers reports whether load balancers can be changed, and need not be replaced.
func (v Version) ModifiesLoadBalancers() bool { return v.AtLeast(15, 5) }

// DSR reports whether endpoints can answer clients directly.
func (v Version) DSR() bool { return v.Major == 9 && v.Minor >= 3 || v.AtLeast(10, 2) }

// Affinity reports whether the address of a client can decide on its endpoint.
func (v Version) Affinity() bool { return v.AtLeast(12, 0) }

// DualStack reports whether there is IPv6.
func (v Version) DualStack() bool { return v.AtLeast(11, 10) }

// Version asks for the version of the service.
func (c *Client) Version() (Version, error) {
	text, err := c.abi.Call("GET", "/globals/version", "")
	if err != nil {
		return Version{}, fmt.Errorf("ask for the version of HNS: %w", err)
	}
	var answer struct {
		Success bool
		Error   string
		Output  Version
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil || !answer.Success {
		return Version{}, fmt.Errorf("ask for the version of HNS: it answers %q", text)
	}
	return answer.Output, nil
}

// query is the document that a request is refined with.
type query struct {
	SchemaVersion Schema
	Flags         uint32
	Filter        string `json:",omitempty"`
}

// IDs lists the objects of a kind, of which some fields have values.
func (c *Client) IDs(k Kind, where map[string]string) (ids []GUID, err error) {
	q := query{SchemaVersion: schema}
	if len(where) > 0 {
		q.Filter = text(where)
	}
	list, err := c.abi.Enumerate(k, text(q))
	if err == nil {
		err = json.Unmarshal([]byte(list), &ids)
	}
	if err != nil {
		return nil, fmt.Errorf("list objects of kind %s: %w", k, err)
	}
	return ids, nil
}

// NetworkNamed returns the network of a name. The error is os.ErrNotExist if there is none.
func (c *Client) NetworkNamed(name string) (*Network, error) {
	ids, err := c.IDs(Networks, map[string]string{"Name": name})
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("network %s: %w", name, os.ErrNotExist)
	}
	return read[Network](c, Networks, ids[0])
}

// Endpoint returns an endpoint.
func (c *Client) Endpoint(id GUID) (*Endpoint, error) { return read[Endpoint](c, Endpoints, id) }

// LoadBalancer returns a load balancer.
func (c *Client) LoadBalancer(id GUID) (*LoadBalancer, error) {
	return read[LoadBalancer](c, LoadBalancers, id)
}

func read[T any](c *Client, k Kind, id GUID) (*T, error) {
	var object T
	err := c.with(k, id, func(h Handle) error {
		properties, err := c.abi.Query(k, h, text(query{SchemaVersion: schema}))
		if err != nil {
			return err
		}
		return json.Unmarshal([]byte(properties), &object)
	})
	if err != nil {
		return nil, fmt.Errorf("read %s %s: %w", k, id, err)
	}
	return &object, nil
}

// with opens an object for as long as f runs.
func (c *Client) with(k Kind, id GUID, f func(Handle) error) error {
	h, err := c.abi.Open(k, id)
	if err != nil {
		return err
	}
	defer func() { _ = c.abi.Close(k, h) }() // nothing else can be done with it
	return f(h)
}

// CreateEndpoint creates an endpoint in a network.
func (c *Client) CreateEndpoint(network GUID, e *Endpoint) error {
	e.SchemaVersion = schema
	err := c.with(Networks, network, func(in Handle) error { return c.create(Endpoints, in, e.ID, e) })
	if err != nil {
		return fmt.Errorf("create an endpoint: %w", err)
	}
	return nil
}

// CreateLoadBalancer creates a load balancer.
func (c *Client) CreateLoadBalancer(b *LoadBalancer) error {
	b.SchemaVersion = schema
	if err := c.create(LoadBalancers, 0, b.ID, b); err != nil {
		return fmt.Errorf("create a load balancer: %w", err)
	}
	return nil
}

func (c *Client) create(k Kind, in Handle, id GUID, object any) error {
	h, err := c.abi.Create(k, in, id, text(object))
	if err != nil {
		return err
	}
	_ = c.abi.Close(k, h) // the object is there
	return nil
}

// ModifyLoadBalancer changes a load balancer to another one of the same ID, address and port.
func (c *Client) ModifyLoadBalancer(b *LoadBalancer) error {
	b.SchemaVersion = schema
	err := c.with(LoadBalancers, b.ID, func(h Handle) error { return c.abi.Modify(LoadBalancers, h, text(b)) })
	if err != nil {
		return fmt.Errorf("change a load balancer: %w", err)
	}
	return nil
}

// Delete deletes an object. One that does not exist is no error.
func (c *Client) Delete(k Kind, id GUID) error {
	if err := c.abi.Delete(k, id); err != nil && !IsGone(err) {
		return fmt.Errorf("delete %s %s: %w", k, id, err)
	}
	return nil
}

func text(document any) string {
	b, _ := json.Marshal(document) // only numbers and texts
	return string(b)
}
