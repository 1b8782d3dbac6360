package hns

import (
	"errors"
	"fmt"
)

// Code is the HRESULT of a call that failed. Names and texts of errors differ from one release
// of Windows to the next, and codes do not.
type Code uint32

// The codes that decide on what is done next.
const (
	NotImplemented    Code = 0x80004001
	InvalidParameter  Code = 0x80070057
	AlreadyExists     Code = 0x800700b7
	NotFound          Code = 0x80070490
	NotRunning        Code = 0x800706b5
	NetworkNotFound   Code = 0x803b0001
	EndpointNotFound  Code = 0x803b0002
	PortAlreadyExists Code = 0x803b0013
)

var meanings = map[Code]string{
	NotImplemented:    "this release of Windows cannot do it",
	InvalidParameter:  "HNS does not understand it",
	AlreadyExists:     "it exists already",
	NotFound:          "it does not exist",
	NotRunning:        "HNS is not running",
	NetworkNotFound:   "the network does not exist",
	EndpointNotFound:  "the endpoint does not exist",
	PortAlreadyExists: "the address and port are taken",
}

func (c Code) Error() string {
	if meaning, ok := meanings[c]; ok {
		return fmt.Sprintf("%s (%#x)", meaning, uint32(c))
	}
	return fmt.Sprintf("HNS refuses it (%#x)", uint32(c))
}

// IsGone reports whether an error says that an object does not exist.
func IsGone(err error) bool {
	return errors.Is(err, NotFound) || errors.Is(err, EndpointNotFound) || errors.Is(err, NetworkNotFound)
}

// IsTaken reports whether an error says that an object exists already, or one with its address and port.
func IsTaken(err error) bool {
	return errors.Is(err, PortAlreadyExists) || errors.Is(err, AlreadyExists)
}
