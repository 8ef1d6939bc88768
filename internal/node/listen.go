package node

import (
	"fmt"
	"net"
)

// Listen opens the listener whose address is in a setting with the given name.
func Listen(setting, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", setting, err)
	}
	return l, nil
}

// openOnce opens a listener that Run serves, unless it is open, and logs its address under the given name.
func (n *Node) openOnce(l *net.Listener, name, setting, address string) (err error) {
	if *l != nil {
		return nil
	}
	if *l, err = Listen(setting, address); err == nil {
		n.Log.Info("listening", name, (*l).Addr().String())
	}
	return err
}

// addressOfListener returns the address of a listener, or "" if it is not open.
func addressOfListener(l net.Listener) string {
	if l == nil {
		return ""
	}
	return l.Addr().String()
}
