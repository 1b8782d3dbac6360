package cli

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/windows/svc"
)

// serviceName is that of upstream's.
const serviceName = "kube-proxy"

// underServiceManager runs the proxy as a service: it ends when the service control manager asks for
// that. Requests to end by other means end it as well.
func underServiceManager(ctx context.Context, run func(context.Context) error) error {
	s := &service{ctx: ctx, run: run}
	if err := svc.Run(serviceName, s); err != nil {
		return fmt.Errorf("--windows-service: %w (leave it out unless the service control manager starts the program)", err)
	}
	return s.err
}

// service is what the service control manager sees of the proxy.
type service struct {
	ctx context.Context
	run func(context.Context) error
	err error
}

// errFailed is the exit code of a service that failed, of its own and none of Windows'.
const errFailed = 1

// Execute implements svc.Handler. The proxy is running as soon as it has begun: it waits for the API
// server and for HNS as long as it takes.
func (s *service) Execute(_ []string, requests <-chan svc.ChangeRequest, status chan<- svc.Status) (ownCode bool, code uint32) {
	ctx, end := context.WithCancel(s.ctx)
	defer end()
	done := make(chan error, 1)
	go func() { done <- s.run(ctx) }()
	status <- svc.Status{State: svc.Running, Accepts: svc.AcceptStop | svc.AcceptShutdown}
	for {
		select {
		case s.err = <-done:
			if s.err != nil && !errors.Is(s.err, context.Canceled) {
				return true, errFailed
			}
			return false, 0
		case r := <-requests:
			switch r.Cmd {
			case svc.Interrogate:
				status <- r.CurrentStatus
			case svc.Stop, svc.Shutdown:
				status <- svc.Status{State: svc.StopPending}
				end()
			}
		}
	}
}
