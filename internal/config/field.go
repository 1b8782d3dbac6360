package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
)

// at returns the field of a configuration by its path in the file, such as
// nftables.syncPeriod. A test checks that all paths of the table exist.
func at(c *Configuration, path string) reflect.Value {
	v := reflect.ValueOf(c).Elem()
	for name := range strings.SplitSeq(path, ".") {
		v = member(v, name)
	}
	return v
}

// member returns a field of a struct by its name in the file.
func member(v reflect.Value, name string) reflect.Value {
	t := v.Type()
	for i := range t.NumField() {
		tag, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if tag == name {
			return v.Field(i)
		}
		if tag == "" && t.Field(i).Anonymous {
			if found := member(v.Field(i), name); found.IsValid() {
				return found
			}
		}
	}
	return reflect.Value{}
}

// pointer returns what a flag needs to set a field: a pointer to a string, number,
// bool, duration or list of strings, or a pflag.Value.
func pointer(v reflect.Value) any {
	switch field := v.Addr().Interface().(type) {
	case **int32:
		return *field
	case **bool:
		return *field
	case *v1alpha1.ProxyMode:
		return (*string)(field)
	case *v1alpha1.LocalMode:
		return (*string)(field)
	case *metav1.Duration:
		return &field.Duration
	case **metav1.Duration:
		return &(*field).Duration
	case *logsapi.TimeOrMetaDuration:
		return &field.Duration.Duration
	case *logsapi.VerbosityLevel:
		return logsapi.VerbosityLevelPflag(field)
	case *logsapi.VModuleConfiguration:
		return logsapi.VModuleConfigurationPflag(field)
	case *map[string]bool:
		return cliflag.NewMapStringBool(field)
	default:
		return field
	}
}

// text returns a field as JSON, to compare and to show. No list is an empty one.
func text(v reflect.Value) string {
	if v.Kind() == reflect.Slice && v.Len() == 0 {
		return "[]"
	}
	data, err := json.Marshal(v.Interface())
	if err != nil {
		return fmt.Sprint(v.Interface())
	}
	return string(data)
}
