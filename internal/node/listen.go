package node

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// Listen opens the listener whose address is in a setting with the given name. The error says what to do.
func Listen(setting, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, listenError(setting, err)
	}
	return l, nil
}

// listenError adds the setting and advice to the error of a listener.
func listenError(setting string, err error) error {
	advice := ""
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		advice = ": another program uses this port, perhaps another node: stop it (`ss -ltnp` shows it), or change " + setting
	case errors.Is(err, syscall.EACCES):
		advice = ": only root and programs with the capability CAP_NET_BIND_SERVICE may use this port: start the node by the " +
			"unit of its package (`systemctl start postrider`), which has the capability, or change " + setting +
			" to a port above 1023"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		advice = ": this machine does not have the address: correct " + setting + ", or leave its host empty"
	}
	return fmt.Errorf("listen at %s: %w%s", setting, err, advice)
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
