package hns

import (
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
