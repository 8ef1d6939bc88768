package node

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestByName checks that only requests for a loopback address with the public URL's port are redirected to localhost.
func TestByName(t *testing.T) {
	t.Parallel()
	const public = "http://localhost:3000"
	for _, c := range []struct{ public, method, host, want string }{
		{public, "GET", "127.0.0.1:3000", public + "/account?a=%2F"},
		{public, "HEAD", "[::1]:3000", public + "/account?a=%2F"},
		{public, "POST", "127.0.0.1:3000", ""},
		{public, "GET", "127.0.0.1:3001", ""}, // another port, for example that of a tunnel
		{public, "GET", "localhost:3000", ""},
		{public, "GET", "mail.example.com", ""},
		{public, "GET", "192.0.2.1:3000", ""},
		{"https://mail.example.com", "GET", "127.0.0.1:3000", ""},
		{"http://127.0.0.1:3000", "GET", "127.0.0.1:3000", ""},
	} {
		h := byName(c.public, http.NotFoundHandler())
		r := httptest.NewRequestWithContext(t.Context(), c.method, "http://"+c.host+"/account?a=%2F", nil)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if got := w.Header().Get("Location"); got != c.want || (w.Code == http.StatusSeeOther) != (c.want != "") {
			t.Errorf("%+v: %d to %q", c, w.Code, got)
		}
	}
}

// TestAddressOf checks that addressOf returns the base URL that the client used, if it is an alias of the public URL.
func TestAddressOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ public, host, want string }{
		{"http://localhost:3000", "localhost:3000", "http://localhost:3000"},
		{"http://localhost:3000", "127.0.0.1:3000", "http://127.0.0.1:3000"},
		{"http://localhost:3000", "[::1]:3000", "http://[::1]:3000"},
		{"http://localhost:3000", "127.0.0.1:3001", "http://localhost:3000"},
		{"http://localhost:3000", "evil.example", "http://localhost:3000"},
		{"http://localhost", "127.0.0.1", "http://127.0.0.1"},
		{"https://mail.example.com", "127.0.0.1", "https://mail.example.com"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+c.host+"/", nil)
		if got := addressOf(c.public)(r); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// TestListenHere checks that the URL contains localhost, or 127.0.0.1 if another program uses the port at ::1.
func TestListenHere(t *testing.T) {
	t.Parallel()
	all, url, err := ListenHere("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range all {
		defer l.Close()
	}
	_, port, err := net.SplitHostPort(all[0].Addr().String())
	if err != nil || url != "http://localhost:"+port {
		t.Errorf("%s, %v", url, err)
	}
	if _, _, err := ListenHere("127.0.0.1:" + port); err == nil {
		t.Error("an address is listened at twice")
	}
	if len(all) == 1 {
		t.Log("this machine has no ::1")
		return
	}
	if got := all[1].Addr().String(); got != "[::1]:"+port {
		t.Errorf("the second address is %s", got)
	}
	all[0].Close() // the port at ::1 remains in use, as if by another program
	again, url, err := ListenHere("127.0.0.1:" + port)
	if err != nil || len(again) != 1 || url != "http://127.0.0.1:"+port {
		t.Fatalf("%d at %s, %v", len(again), url, err)
	}
	again[0].Close()
}
