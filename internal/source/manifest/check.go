package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"sluice/internal/model"
	"sluice/internal/source"
)

// maxProblems bounds what is reported of one object.
const maxProblems = 16

// checker checks one object and reports why it is refused.
type checker struct {
	decoder *decoder
	item    *item
	count   int
	failed  bool
}

func (d *decoder) check(it *item) *checker { return &checker{decoder: d, item: it} }

// add refuses the object because of a field. The remedy is for its author.
func (c *checker) add(field, remedy, reason string, args ...any) {
	c.failed = true
	c.count++
	if c.count > maxProblems {
		return
	}
	p := model.Problem{Object: describe(c.item.Kind, c.item.name()), Field: field, Reason: fmt.Sprintf(reason, args...), Remedy: remedy}
	if c.item.Kind == "" {
		p.Object = "document"
	}
	if c.count == maxProblems {
		p.Field, p.Reason, p.Remedy = "", "and more of the same object", "mend the ones listed first"
	}
	c.decoder.problems = append(c.decoder.problems, c.decoder.problem(c.item, p, true))
}

// mistyped reports that the object does not have the shape of its kind.
func (c *checker) mistyped(err error) {
	var typeError *json.UnmarshalTypeError
	if errors.As(err, &typeError) {
		remedy := "write a " + shape(typeError.Type)
		if typeError.Type.Kind() == reflect.String {
			remedy = "put the value in quotes"
		}
		c.add(typeError.Field, remedy, "there is a %s where a %s belongs", typeError.Value, shape(typeError.Type))
		return
	}
	c.add("", "correct the value", "%s", strings.TrimPrefix(err.Error(), "json: "))
}

// shape names a type as a reader of YAML would.
func shape(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return shape(t.Elem())
	case reflect.Bool:
		return "boolean"
	case reflect.String:
		return "string"
	case reflect.Slice, reflect.Array:
		return "list"
	case reflect.Struct, reflect.Map:
		return "mapping"
	}
	return "whole number that fits " + t.Kind().String()
}

// meta checks the name of an object, by the rule for its kind.
func (c *checker) meta(meta *metav1.ObjectMeta, rule func(string) []string) {
	if meta.Name == "" {
		c.add("metadata.name", "set metadata.name", "the name is missing")
	} else {
		c.name("metadata.name", meta.Name, rule)
	}
	if meta.Namespace != "" {
		c.name("metadata.namespace", meta.Namespace, validation.IsDNS1123Label)
	}
}

func (c *checker) name(field, name string, rule func(string) []string) {
	if errs := rule(name); len(errs) > 0 {
		c.add(field, "use lower case letters, digits and -, beginning and ending with a letter or digit",
			"%q is not a valid name: %s", name, strings.Join(errs, "; "))
	}
}

func (c *checker) port(field string, port int32) {
	if port < 1 || port > 65535 {
		c.add(field, "use a port from 1 to 65535", "%d is not a port", port)
	}
}

// protocol checks a protocol. None at all means TCP.
func (c *checker) protocol(field string, p v1.Protocol) {
	switch p {
	case "", v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP:
	default:
		c.add(field, "use TCP, UDP or SCTP", "%q is not a protocol of Services", p)
	}
}

// oneOf checks a field that has a few possible values or is absent.
func (c *checker) oneOf(field, value string, values ...string) {
	if value == "" {
		return
	}
	for _, v := range values {
		if v == value {
			return
		}
	}
	c.add(field, "use "+strings.Join(values, " or "), "%q is not a value of this field", value)
}

// addr checks the form of an address. What it is good for is another matter.
func (c *checker) addr(field, s string) (netip.Addr, bool) {
	addr, err := source.ParseAddr(s)
	if err != nil {
		c.add(field, "write a plain IPv4 or IPv6 address", "%v", err)
		return netip.Addr{}, false
	}
	return addr, true
}

func (c *checker) node(node *v1.Node) bool {
	c.meta(&node.ObjectMeta, validation.IsDNS1123Subdomain)
	for i, cidr := range node.Spec.PodCIDRs {
		c.cidr(fmt.Sprintf("spec.podCIDRs[%d]", i), cidr)
	}
	for i, a := range node.Status.Addresses {
		if a.Type == v1.NodeInternalIP || a.Type == v1.NodeExternalIP {
			c.addr(fmt.Sprintf("status.addresses[%d].address", i), a.Address)
		}
	}
	return !c.failed
}

func (c *checker) serviceCIDR(cidr *networkingv1.ServiceCIDR) bool {
	c.meta(&cidr.ObjectMeta, validation.IsDNS1123Subdomain)
	if len(cidr.Spec.CIDRs) == 0 {
		c.add("spec.cidrs", "set one CIDR, or one for each family", "there is no CIDR")
	}
	seen := map[model.Family]bool{}
	for i, s := range cidr.Spec.CIDRs {
		field := fmt.Sprintf("spec.cidrs[%d]", i)
		prefix, ok := c.cidr(field, s)
		if !ok {
			continue
		}
		family := model.FamilyOf(prefix.Addr())
		if seen[family] {
			c.add(field, "put it into a ServiceCIDR of its own", "there are two CIDRs of family %s", family)
		}
		seen[family] = true
	}
	return !c.failed
}

func (c *checker) cidr(field, s string) (netip.Prefix, bool) {
	prefix, err := source.ParsePrefix(s)
	if err != nil {
		c.add(field, "write a CIDR such as 10.96.0.0/16", "%v", err)
		return netip.Prefix{}, false
	}
	return prefix, true
}
