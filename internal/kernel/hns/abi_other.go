//go:build !windows

package hns

import "errors"

// Service returns an error: only Windows has the service.
func Service() (ABI, error) {
	return nil, errors.New("the Host Networking Service is a part of Windows")
}
