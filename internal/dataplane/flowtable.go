package dataplane

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// FlowTableScope is which devices of the node have a flow table.
type FlowTableScope string

// The scopes.
const (
	FlowTableOff     FlowTableScope = "off"
	FlowTableOutside FlowTableScope = "outside" // that of the node's address, or a named one
	FlowTableDevices FlowTableScope = "devices" // and those that lead to endpoints
)

// FlowTable is what the configuration says of flow tables. The zero value is off.
type FlowTable struct {
	Scope FlowTableScope
	// Device is the named one of scope outside; empty for that of the node's address.
	Device string
}

// maxDeviceName is IFNAMSIZ without the final zero.
const maxDeviceName = 15

var errFlowTable = errors.New("not a value for flow tables")

// ParseFlowTable parses what String returns.
func ParseFlowTable(text string) (FlowTable, error) {
	scope, device, named := strings.Cut(text, ":")
	f := FlowTable{FlowTableScope(scope), device}
	switch {
	case text == string(FlowTableOff), text == "":
		return FlowTable{}, nil
	case named && (f.Scope != FlowTableOutside || device == "" || len(device) > maxDeviceName || strings.ContainsAny(device, "/: \t\n\x00")):
	case f.Scope == FlowTableOutside, f.Scope == FlowTableDevices:
		return f, nil
	}
	return FlowTable{}, fmt.Errorf("%q: %w", text, errFlowTable)
}

// On reports whether there are flow tables.
func (f FlowTable) On() bool { return f.Scope == FlowTableOutside || f.Scope == FlowTableDevices }

// NeedsNodeAddress reports whether the device is that of the node's address.
func (f FlowTable) NeedsNodeAddress() bool { return f.On() && f.Device == "" }

func (f FlowTable) String() string {
	switch {
	case !f.On():
		return string(FlowTableOff)
	case f.Device != "":
		return string(f.Scope) + ":" + f.Device
	}
	return string(f.Scope)
}

// Offloader is a Dataplane that can have the kernel forward packets of established connections past its rules, by
// a flow table at devices.
type Offloader interface {
	// Offload makes the flow tables as they are wanted, adopts those of an earlier process, and mends what another
	// program has changed. It returns the devices that they have. The error is ErrNoFlowTables if the
	// kernel has none.
	Offload(context.Context, *Offload) (devices []string, err error)
}

// Offload is what is forwarded by flow tables.
type Offload struct {
	// Families have a flow table. Of others nothing is left in the kernel.
	Families []model.Family
	// Devices are where packets come in that are forwarded so. Those that do not exist are left out.
	Devices []string
	// Changed says of frontends whether they are there from now on, or gone: the first time of all that there
	// are, and then of those that came and went since the last call, whether that failed or not.
	Changed map[plan.Key]bool
}

// OffloadAfter is how many packets a connection has before an Offloader has its packets forwarded.
const OffloadAfter = 20

// ErrNoFlowTables is why a kernel does not offload.
var ErrNoFlowTables = errors.New("the kernel has no flow tables")
