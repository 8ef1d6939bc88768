package node

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

// TestBehindProxies checks that the last address that does not belong to a proxy is used as the client's address.
// TestBehindProxies also checks that X-Forwarded-For is ignored in a request that does not come from a proxy.
func TestBehindProxies(t *testing.T) {
	t.Parallel()
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:1::/48")}
	for _, c := range []struct{ peer, forwarded, want string }{
		{"203.0.113.9:5000", "198.51.100.1", "203.0.113.9:5000"},
		{"203.0.113.9:5000", "", "203.0.113.9:5000"},
		{"10.0.0.1:5000", "198.51.100.1", "198.51.100.1:0"},
		{"[::ffff:10.0.0.1]:5000", "198.51.100.1", "198.51.100.1:0"},
		{"[2001:db8:1::5]:5000", "2001:db8::7", "[2001:db8::7]:0"},
		{"10.0.0.1:5000", "192.0.2.66, 198.51.100.1", "198.51.100.1:0"},
		{"10.0.0.1:5000", "192.0.2.66, 198.51.100.1 , 10.0.0.2", "198.51.100.1:0"},
		{"10.0.0.1:5000", "198.51.100.1\n10.0.0.2", "198.51.100.1:0"},
		{"10.0.0.1:5000", "198.51.100.1:4711", "198.51.100.1:0"},
		{"10.0.0.1:5000", "[2001:db8::7]:4711", "[2001:db8::7]:0"},
		{"10.0.0.1:5000", "[2001:db8::7]", "[2001:db8::7]:0"},
		{"10.0.0.1:5000", "192.0.2.66, not an address", "10.0.0.1:5000"},
		{"10.0.0.1:5000", "", "10.0.0.1:5000"},
		{"10.0.0.1:5000", "10.0.0.3", "10.0.0.3:0"},
		{"somewhere", "198.51.100.1", "somewhere"},
	} {
		got := ""
		h := behindProxies(proxies, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.RemoteAddr }))
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = c.peer
		if c.forwarded != "" {
			r.Header["X-Forwarded-For"] = strings.Split(c.forwarded, "\n")
		}
		h.ServeHTTP(httptest.NewRecorder(), r)
		if got != c.want {
			t.Errorf("from %s, forwarded for %q: %s, want %s", c.peer, c.forwarded, got, c.want)
		}
		if r.RemoteAddr != c.peer {
			t.Errorf("the server's request is changed to %s", r.RemoteAddr)
		}
	}
}
