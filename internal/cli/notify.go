package cli

import (
	"fmt"
	"net"
)

// notifySystemd tells systemd a state of this process, such as "READY=1" (sd_notify(3)). Without systemd, which sets
// NOTIFY_SOCKET, notifySystemd does nothing.
func notifySystemd(getenv func(string) string, state string) error {
	path := getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	c, err := net.Dial("unixgram", path) // a name that begins with "@" is abstract
	if err != nil {
		return fmt.Errorf("reach systemd at NOTIFY_SOCKET: %w", err)
	}
	defer c.Close()
	if _, err := c.Write([]byte(state)); err != nil {
		return fmt.Errorf("tell systemd at NOTIFY_SOCKET: %w", err)
	}
	return nil
}
