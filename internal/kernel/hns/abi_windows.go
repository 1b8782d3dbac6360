package hns

import (
	"fmt"
	"strings"
	"unsafe"

	"golang.org/x/sys/windows"
)

// dll is the service of this machine.
type dll struct {
	network, compute *windows.LazyDLL
	procedures       map[string]*windows.LazyProc
}

// Service returns the service of this machine. It need not be running.
func Service() (ABI, error) {
	d := &dll{windows.NewLazySystemDLL("computenetwork.dll"), windows.NewLazySystemDLL("vmcompute.dll"), map[string]*windows.LazyProc{}}
	for _, l := range []*windows.LazyDLL{d.network, d.compute} {
		if err := l.Load(); err != nil {
			return nil, fmt.Errorf("the Host Networking Service is not installed: %w (install the Windows feature Containers)", err)
		}
	}
	for _, k := range []Kind{Networks, Endpoints, LoadBalancers} {
		for _, f := range []string{"HcnEnumerate%ss", "HcnOpen%s", "HcnCreate%s", "HcnQuery%sProperties", "HcnModify%s", "HcnDelete%s", "HcnClose%s"} {
			name := strings.ReplaceAll(f, "%s", string(k))
			d.procedures[name] = d.network.NewProc(name)
		}
	}
	d.procedures["HNSCall"] = d.compute.NewProc("HNSCall")
	return d, nil
}

// call calls a function with as many words as it takes. What they point to stays where it is.
//
//go:uintptrescapes
func (d *dll) call(format string, k Kind, words ...uintptr) error {
	p := d.procedures[strings.ReplaceAll(format, "%s", string(k))]
	if err := p.Find(); err != nil {
		return NotImplemented // releases without DSR lack some functions
	}
	result, _, _ := p.Call(words...)
	if int32(result) < 0 {
		return Code(result)
	}
	return nil
}

func utf16(s string) (*uint16, error) { return windows.UTF16PtrFromString(s) }

// take returns a string that the service has allocated, and frees it.
func take(p *uint16) string {
	if p == nil {
		return ""
	}
	defer windows.CoTaskMemFree(unsafe.Pointer(p))
	return windows.UTF16PtrToString(p)
}

// native returns the GUID as Windows has it in memory.
func (g GUID) native() *windows.GUID {
	n := &windows.GUID{
		Data1: uint32(g[0])<<24 | uint32(g[1])<<16 | uint32(g[2])<<8 | uint32(g[3]),
		Data2: uint16(g[4])<<8 | uint16(g[5]),
		Data3: uint16(g[6])<<8 | uint16(g[7]),
	}
	copy(n.Data4[:], g[8:])
	return n
}

func (d *dll) Enumerate(k Kind, query string) (string, error) {
	q, err := utf16(query)
	if err != nil {
		return "", err
	}
	var ids, record *uint16
	err = d.call("HcnEnumerate%ss", k, uintptr(unsafe.Pointer(q)), uintptr(unsafe.Pointer(&ids)), uintptr(unsafe.Pointer(&record)))
	take(record)
	return take(ids), err
}

func (d *dll) Open(k Kind, id GUID) (h Handle, err error) {
	var record *uint16
	err = d.call("HcnOpen%s", k, uintptr(unsafe.Pointer(id.native())), uintptr(unsafe.Pointer(&h)), uintptr(unsafe.Pointer(&record)))
	take(record)
	return h, err
}

func (d *dll) Create(k Kind, network Handle, id GUID, settings string) (h Handle, err error) {
	s, err := utf16(settings)
	if err != nil {
		return 0, err
	}
	var record *uint16
	if k == Endpoints {
		err = d.call("HcnCreate%s", k, uintptr(network), uintptr(unsafe.Pointer(id.native())), uintptr(unsafe.Pointer(s)), uintptr(unsafe.Pointer(&h)), uintptr(unsafe.Pointer(&record)))
	} else {
		err = d.call("HcnCreate%s", k, uintptr(unsafe.Pointer(id.native())), uintptr(unsafe.Pointer(s)), uintptr(unsafe.Pointer(&h)), uintptr(unsafe.Pointer(&record)))
	}
	take(record)
	return h, err
}

func (d *dll) Query(k Kind, h Handle, query string) (string, error) {
	q, err := utf16(query)
	if err != nil {
		return "", err
	}
	var properties, record *uint16
	err = d.call("HcnQuery%sProperties", k, uintptr(h), uintptr(unsafe.Pointer(q)), uintptr(unsafe.Pointer(&properties)), uintptr(unsafe.Pointer(&record)))
	take(record)
	return take(properties), err
}

func (d *dll) Modify(k Kind, h Handle, settings string) error {
	s, err := utf16(settings)
	if err != nil {
		return err
	}
	var record *uint16
	err = d.call("HcnModify%s", k, uintptr(h), uintptr(unsafe.Pointer(s)), uintptr(unsafe.Pointer(&record)))
	take(record)
	return err
}

func (d *dll) Delete(k Kind, id GUID) error {
	var record *uint16
	err := d.call("HcnDelete%s", k, uintptr(unsafe.Pointer(id.native())), uintptr(unsafe.Pointer(&record)))
	take(record)
	return err
}

func (d *dll) Close(k Kind, h Handle) error { return d.call("HcnClose%s", k, uintptr(h)) }

func (d *dll) Call(method, path, request string) (string, error) {
	var in [3]*uint16
	for i, s := range []string{method, path, request} {
		var err error
		if in[i], err = utf16(s); err != nil {
			return "", err
		}
	}
	var response *uint16
	err := d.call("HNSCall", "", uintptr(unsafe.Pointer(in[0])), uintptr(unsafe.Pointer(in[1])), uintptr(unsafe.Pointer(in[2])), uintptr(unsafe.Pointer(&response)))
	return take(response), err
}
