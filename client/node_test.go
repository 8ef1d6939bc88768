package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/postrider/postrider/client"
	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/domains"
)

// Variables of the node that the examples use.
const (
	urlVariable = "POSTRIDER_URL"
	keyVariable = "POSTRIDER_API_KEY"
)

const testKey = "re_client_test"

// TestMain starts a node for the examples, which have no test that could start one.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "postrider-client-*")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	n, err := startNode(context.Background(), map[string]string{"data_dir": filepath.Join(dir, "data")})
	if err != nil {
		fmt.Fprintln(os.Stderr, "start a node for the examples:", err)
		os.Exit(1)
	}
	os.Setenv(urlVariable, n.url)
	os.Setenv(keyVariable, testKey)
	dbtest.After(func() {
		if err := errors.Join(n.stop(), os.RemoveAll(dir)); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	})
	dbtest.Main(m)
}

// testNode is a running node with a team, the verified domain acme.example and the API key testKey.
type testNode struct {
	*node.Node
	url  string
	stop func() error
}

// startNode starts a node that captures all email. The settings override those of the tests.
func startNode(ctx context.Context, settings map[string]string) (*testNode, error) {
	all := map[string]string{"http_listen": "127.0.0.1:0", "transport": "capture", "rate_limit": "1000",
		"sandbox_send": "true", "trust_domains": "true", "allow_loopback": "true", "log_level": "error",
		"hostname": "localhost", "shutdown_grace": "5s", "roles": "api,delivery,jobs",
		"secret_key": strings.Repeat("5e", 32)}
	maps.Copy(all, settings)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	n := &testNode{url: "http://" + l.Addr().String()}
	all["public_url"] = n.url
	c, err := config.Load(config.Source{Defaults: all, Environ: func() []string { return nil }})
	if err == nil {
		n.Node, err = node.Open(ctx, c, slog.New(slog.DiscardHandler), node.Options{Version: "test"})
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	if err := n.prepare(ctx); err != nil {
		n.Close()
		return nil, errors.Join(err, l.Close())
	}
	running, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(running, l) }()
	n.stop = sync.OnceValue(func() error {
		cancel()
		err := <-ended
		n.Close()
		return err
	})
	return n, nil
}

func (n *testNode) prepare(ctx context.Context) error {
	if err := n.Teams.EnsureKey(ctx, "Acme", "client", testKey); err != nil {
		return err
	}
	by, err := n.Teams.Authenticate(ctx, testKey)
	if err != nil {
		return err
	}
	_, err = n.Domains.AddVerified(ctx, by.TeamID, domains.NewDomain{Name: "acme.example"})
	return err
}

// start starts a node on an engine until the test ends, and returns a client of its API.
func start(t *testing.T, engine string, settings map[string]string, options ...client.Option) (*testNode,
	*client.Client) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{"data_dir": dir}
	if engine == "postgres" {
		all["database_url"] = dbtest.PostgresURL(t)
	} else {
		dbtest.WriteSQLite(t, filepath.Join(dir, "postrider.db"))
	}
	maps.Copy(all, settings)
	n, err := startNode(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.stop(); err != nil {
			t.Errorf("the node ended with %v", err)
		}
	})
	return n, n.client(t, n.url, options...)
}

func (n *testNode) client(t *testing.T, address string, options ...client.Option) *client.Client {
	t.Helper()
	c, err := client.New(address, testKey, options...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// proxy is a reverse proxy between a client and a node.
type proxy struct {
	*httptest.Server
	mu       sync.Mutex
	requests []string // method and path of each request
	headers  []http.Header
}

// newProxy starts a proxy. The function handle gets the number of a request, counted from 1. It may answer the request
// or change it, and otherwise calls forward.
func newProxy(t *testing.T, n *testNode, handle func(i int, w http.ResponseWriter, r *http.Request,
	forward http.Handler)) *proxy {
	t.Helper()
	target, err := url.Parse(n.url)
	if err != nil {
		t.Fatal(err)
	}
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {}, FlushInterval: -1}
	p := &proxy{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.requests = append(p.requests, r.Method+" "+r.URL.Path)
		p.headers = append(p.headers, r.Header.Clone())
		i := len(p.requests)
		p.mu.Unlock()
		handle(i, w, r, forward)
	}))
	t.Cleanup(p.Close)
	return p
}

// seen returns the requests until now.
func (p *proxy) seen() (requests []string, headers []http.Header) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests, p.headers
}

// breakConnection closes the connection of a request without a response.
func breakConnection(w http.ResponseWriter) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		c.Close()
	}
}
