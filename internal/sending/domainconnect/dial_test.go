package domainconnect_test

import (
	"context"
	"net"
)

// dialTo returns a dial function that connects to one address, whatever host is named.
func dialTo(addr string) func(ctx context.Context, network, _ string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
}
