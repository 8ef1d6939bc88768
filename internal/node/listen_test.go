package node

import (
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
)

// The error of a listener names the setting and says what to do.
func TestListenErrors(t *testing.T) {
	t.Parallel()
	l, err := Listen("http_listen", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, used := Listen("http_listen", l.Addr().String())
	_, elsewhere := Listen("http_listen", "192.0.2.1:0")
	_, broken := Listen("http_listen", "127.0.0.1:none")
	denied := listenError("http_listen", &net.OpError{Op: "listen", Net: "tcp", Err: os.NewSyscallError("bind",
		syscall.EACCES)})
	for _, x := range []struct {
		err  error
		want []string
	}{
		{used, []string{"address already in use: another program", "`ss -ltnp`", "change http_listen"}},
		{denied, []string{"permission denied: only root", "CAP_NET_BIND_SERVICE", "systemctl start postrider", "http_listen to"}},
		{elsewhere, []string{"this machine does not have the address", "correct http_listen"}},
		{broken, []string{"unknown port"}},
	} {
		for _, want := range append(x.want, "listen at http_listen: ") {
			if x.err == nil || !strings.Contains(x.err.Error(), want) {
				t.Errorf("%v does not contain %q", x.err, want)
			}
		}
	}
}
