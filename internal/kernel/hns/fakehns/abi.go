package fakehns

import "sluice/internal/kernel/hns"

// ABI returns the service as clients in the same process call it.
func (h *HNS) ABI() hns.ABI { return abi{h} }

type abi struct{ hns *HNS }

func (a abi) do(c Call) (hns.Handle, string, error) {
	code, handle, document := a.hns.Do(c)
	if code != 0 {
		return 0, "", code
	}
	return handle, document, nil
}

func (a abi) Enumerate(k hns.Kind, query string) (string, error) {
	_, ids, err := a.do(Call{Function: "HcnEnumerate" + string(k) + "s", Strings: []string{query}})
	return ids, err
}

func (a abi) Open(k hns.Kind, id hns.GUID) (hns.Handle, error) {
	h, _, err := a.do(Call{Function: "HcnOpen" + string(k), ID: id.String()})
	return h, err
}

func (a abi) Create(k hns.Kind, network hns.Handle, id hns.GUID, settings string) (hns.Handle, error) {
	h, _, err := a.do(Call{Function: "HcnCreate" + string(k), ID: id.String(), Handle: network, Strings: []string{settings}})
	return h, err
}

func (a abi) Query(k hns.Kind, h hns.Handle, query string) (string, error) {
	_, properties, err := a.do(Call{Function: "HcnQuery" + string(k) + "Properties", Handle: h, Strings: []string{query}})
	return properties, err
}

func (a abi) Modify(k hns.Kind, h hns.Handle, settings string) error {
	_, _, err := a.do(Call{Function: "HcnModify" + string(k), Handle: h, Strings: []string{settings}})
	return err
}

func (a abi) Delete(k hns.Kind, id hns.GUID) error {
	_, _, err := a.do(Call{Function: "HcnDelete" + string(k), ID: id.String()})
	return err
}

func (a abi) Close(k hns.Kind, h hns.Handle) error {
	_, _, err := a.do(Call{Function: "HcnClose" + string(k), Handle: h})
	return err
}

func (a abi) Call(method, path, request string) (string, error) {
	_, response, err := a.do(Call{Function: "HNSCall", Strings: []string{method, path, request}})
	return response, err
}
