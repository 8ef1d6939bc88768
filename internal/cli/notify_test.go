package cli

import (
	"net"
	"path/filepath"
	"testing"
)

// systemd learns the state of the process, and a process without systemd goes on without it.
func TestNotifySystemd(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	vars := map[string]string{"NOTIFY_SOCKET": path}
	getenv := func(name string) string { return vars[name] }
	if err := notifySystemd(getenv, "READY=1"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 100)
	n, err := l.Read(got)
	if err != nil || string(got[:n]) != "READY=1" {
		t.Errorf("systemd gets %q, %v", got[:n], err)
	}
	vars["NOTIFY_SOCKET"] = path + "-missing"
	if err := notifySystemd(getenv, "READY=1"); err == nil {
		t.Error("a missing socket is not an error")
	}
	delete(vars, "NOTIFY_SOCKET")
	if err := notifySystemd(getenv, "READY=1"); err != nil {
		t.Errorf("without systemd: %v", err)
	}
}
