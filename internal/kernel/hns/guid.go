package hns

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// GUID identifies an object. Its bytes are in the order in which they are written.
type GUID [16]byte

// ParseGUID reads a GUID, with or without braces, in capitals or not.
func ParseGUID(text string) (g GUID, err error) {
	plain := strings.ReplaceAll(strings.Trim(text, "{}"), "-", "")
	b, err := hex.DecodeString(plain)
	if err != nil || len(b) != len(g) {
		return GUID{}, fmt.Errorf("%q is not a GUID", text)
	}
	return GUID(b), nil
}

// mark is what the IDs of our objects begin with.
var mark = []byte("sluice")

// NewID returns the ID of an object of this program from what it is for. It has the form of RFC 9562 for IDs
// with a meaning of their own, version 8.
func NewID(purpose string) (g GUID) {
	sum := sha256.Sum256([]byte(purpose))
	copy(g[copy(g[:], mark):], sum[:])
	g[6], g[8] = g[6]&0x0f|0x80, g[8]&0x3f|0x80
	return g
}

// IsOurs reports whether an object is one of this program's.
func (g GUID) IsOurs() bool { return bytes.HasPrefix(g[:], mark) && g[6]>>4 == 8 }

// String writes a GUID as HNS does in its documents.
func (g GUID) String() string {
	return fmt.Sprintf("%X-%X-%X-%X-%X", g[:4], g[4:6], g[6:8], g[8:10], g[10:])
}

// MarshalText implements encoding.TextMarshaler.
func (g GUID) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. An empty text is the zero value.
func (g *GUID) UnmarshalText(text []byte) (err error) {
	if len(text) == 0 {
		*g = GUID{}
		return nil
	}
	*g, err = ParseGUID(string(text))
	return err
}
