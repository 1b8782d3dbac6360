package status

import (
	"fmt"

	"golang.org/x/sys/windows"
)

func kernelVersion() string {
	v := windows.RtlGetVersion()
	return fmt.Sprintf("Windows %d.%d.%d", v.MajorVersion, v.MinorVersion, v.BuildNumber)
}
