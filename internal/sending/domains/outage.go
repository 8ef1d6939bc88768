package domains

import (
	"context"
	"sync"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/resolve"
)

// outageWatch is a Resolver that remembers whether our own DNS servers failed. Their failure says nothing about a
// domain's records, so the look-up is repeated soon.
type outageWatch struct {
	resolve.Resolver
	mu  sync.Mutex
	err error
}

func (w *outageWatch) watch(err error) error {
	if fault.IsOutage(err) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.err = err
	}
	return err
}

// outage returns the error if our own DNS servers failed in one of the look-ups.
func (w *outageWatch) outage() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// MX implements resolve.Resolver.
func (w *outageWatch) MX(ctx context.Context, name string) ([]resolve.MX, error) {
	all, err := w.Resolver.MX(ctx, name)
	return all, w.watch(err)
}

// TXT implements resolve.Resolver.
func (w *outageWatch) TXT(ctx context.Context, name string) ([]string, error) {
	all, err := w.Resolver.TXT(ctx, name)
	return all, w.watch(err)
}

// CNAME implements resolve.Resolver.
func (w *outageWatch) CNAME(ctx context.Context, name string) (string, error) {
	host, err := w.Resolver.CNAME(ctx, name)
	return host, w.watch(err)
}

// CAA implements resolve.Resolver.
func (w *outageWatch) CAA(ctx context.Context, name string) ([]resolve.CAA, error) {
	all, err := w.Resolver.CAA(ctx, name)
	return all, w.watch(err)
}
