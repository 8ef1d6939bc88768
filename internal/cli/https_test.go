package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/smtp"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/platform/certs/certstest"
	"github.com/postrider/postrider/internal/sending/domains"
)

const (
	appHost  = "app.postrider.test"
	mailHost = "mail.postrider.test"
)

// secureNode is a node with HTTPS, whose certificates come from a test authority.
type secureNode struct {
	*started
	a   *certstest.Authority
	key string
}

// startSecure starts a node with listeners for all protocols, and waits for its certificates.
func (p *installation) startSecure() *secureNode {
	p.t.Helper()
	a := certstest.New(p.t, 0)
	for name, value := range map[string]string{"ACME": "true", "ACME_DIRECTORY": a.Directory, "ACME_CA_FILE": a.CAFile,
		"HTTPS_LISTEN": "127.0.0.1:0", "PUBLIC_URL": "https://" + appHost, "HOSTNAME": mailHost,
		"ROLES": "api,delivery,jobs,submission,receiving", "SMTP_IN_LISTEN": "127.0.0.1:0",
		"SMTP_SUBMITS_LISTEN": "127.0.0.1:0", "HTTP_PROXY_FROM": "127.0.0.2/32"} {
		p.vars["POSTRIDER_"+name] = value
	}
	n := &secureNode{a: a, key: p.key("Acme", "--email", "owner@acme.example")}
	n.started = p.start(func(n *node.Node) {
		if err := errors.Join(n.ListenHTTPS(), n.ListenInboundDev("")); err != nil {
			p.t.Fatal(err)
		}
	})
	a.HTTP.To(strings.TrimPrefix(n.url, "http://"))
	a.TLS.To(n.HTTPSAddr())
	eventually(p.t, "the certificates", func() bool {
		all, err := n.Certificates(p.t.Context())
		if err != nil {
			p.t.Fatal(err)
		}
		missing := 0
		for _, c := range all {
			if c.NotAfter.IsZero() {
				missing++
			}
		}
		// The listeners load a certificate a moment after it was stored.
		return missing == 0 && len(all) == 2 && n.shows(n.HTTPSAddr(), appHost) &&
			n.shows(n.Port(node.PortSubmits), mailHost)
	})
	return n
}

// shows reports whether a listener with TLS has a valid certificate of a host.
func (n *secureNode) shows(addr, host string) bool {
	c, err := tls.Dial("tcp", addr, &tls.Config{ServerName: host, RootCAs: n.a.Roots})
	if err == nil {
		c.Close()
	}
	return err == nil
}

// client returns a client that connects to the node for every host, trusts the authority and follows no redirects.
func (n *secureNode) client() *http.Client {
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: n.a.Roots},
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if strings.HasSuffix(addr, ":443") {
				return new(net.Dialer).DialContext(ctx, network, n.HTTPSAddr())
			}
			return new(net.Dialer).DialContext(ctx, network, strings.TrimPrefix(n.url, "http://"))
		}}
	n.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// get makes a request, and returns the response and its body.
func (n *secureNode) get(c *http.Client, method, url string, header ...string) (*http.Response, string) {
	n.t.Helper()
	r, err := http.NewRequestWithContext(n.t.Context(), method, url, nil)
	if err != nil {
		n.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := c.Do(r)
	if err != nil {
		n.t.Fatalf("%s: %v", url, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	return answer, string(text)
}

// A node gets certificates from an authority for all of its protocols, and for verified tracking hosts on demand.
func TestSecureNode(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		n := p.startSecure()
		c := n.client()
		answer, _ := n.get(c, "GET", "https://"+appHost+"/domains", "Authorization", "Bearer "+n.key)
		if answer.StatusCode != 200 || answer.ProtoMajor != 2 || answer.TLS.Version < tls.VersionTLS12 ||
			answer.Header.Get("Strict-Transport-Security") != "max-age=31536000" {
			t.Errorf("the API answers %d over %s with %v", answer.StatusCode, answer.Proto, answer.Header)
		}
		by, err := n.Teams.Authenticate(t.Context(), n.key)
		if err != nil {
			t.Fatal(err)
		}
		shop := domains.NewDomain{Name: "shop.example", TrackingSubdomain: "links"}
		if _, err := n.Domains.AddVerified(t.Context(), by.TeamID, shop); err != nil {
			t.Fatal(err)
		}
		issued := n.a.Issued()
		for _, scheme := range []string{"https", "http"} {
			answer, _ = n.get(c, "GET", scheme+"://links.shop.example/c/none")
			if answer.StatusCode != 404 || answer.Header.Get("Strict-Transport-Security") != "" {
				t.Errorf("a customer's host answers %s with %d and %v", scheme, answer.StatusCode, answer.Header)
			}
		}
		if answer, err := c.Get("https://links.unknown.example/c/none"); err == nil {
			answer.Body.Close()
			t.Error("a host that is not verified has a certificate")
		}
		if got := n.a.Issued() - issued; got != 1 {
			t.Errorf("%d certificates were issued for one verified host", got)
		}
		n.speakSMTP()
	})
}

// speakSMTP checks the certificates of the SMTP listeners.
func (n *secureNode) speakSMTP() {
	n.t.Helper()
	c := &tls.Config{ServerName: mailHost, RootCAs: n.a.Roots}
	for _, name := range []string{node.PortInbound, node.PortSubmit} {
		s, err := smtp.Dial(n.Port(name))
		if err != nil {
			n.t.Fatal(err)
		}
		if err := s.StartTLS(c); err != nil {
			n.t.Errorf("STARTTLS at %s: %v", name, err)
		}
		s.Close()
	}
	s, err := tls.Dial("tcp", n.Port(node.PortSubmits), c)
	if err != nil {
		n.t.Fatalf("TLS from the first byte: %v", err)
	}
	s.Close()
}

// Over HTTP without TLS, pages lead to HTTPS, and the API refuses requests, because their keys are sent in clear.
func TestPlainHTTP(t *testing.T) {
	t.Parallel()
	p := migratedInstallation(t, "sqlite")
	n := p.startSecure()
	c := n.client()
	const page, api = "text/html", "*/*"
	for _, x := range []struct {
		method, url, accept, key string
		status                   int
		want                     string // Location, or a part of the body
	}{
		{"GET", "http://" + appHost + "/app/emails?q=a%20b", page, "", 308, "https://" + appHost + "/app/emails?q=a%20b"},
		{"POST", "http://" + appHost + "/sign-in", page, "", 308, "https://" + appHost + "/sign-in"},
		{"GET", "http://" + appHost + ":8080/docs", api, "", 308, "https://" + appHost + "/docs"},
		{"GET", "http://links.shop.example/", page, "", 308, "https://links.shop.example/"},
		{"POST", "http://" + appHost + "/unsubscribe/x", api, "", 308, "https://" + appHost + "/unsubscribe/x"},
		{"GET", "http://" + appHost + "//evil.example/", page, "", 308, "https://" + appHost + "//evil.example/"},
		{"GET", "http://" + appHost + "/.well-known/oauth-authorization-server", api, "", 308, "https://"},
		{"GET", "http://" + appHost + "/emails", api, n.key, 403, "revoke the key"},
		{"POST", "http://" + appHost + "/emails", api, n.key, 403, `"name":"validation_error"`},
		{"POST", "http://" + appHost + "/mcp", api, n.key, 403, "https://" + appHost},
		{"POST", "http://" + appHost + "/oauth/token", api, "", 403, "HTTPS only"},
		{"GET", "http://" + appHost + "/app/emails", page, n.key, 403, "revoke the key"},
		{"GET", "http://" + appHost + "/nothing", api, "", 403, "https://" + appHost},
		{"GET", "http://" + appHost + "/healthz", api, "", 200, ""},
		{"GET", "http://" + appHost + "/readyz", api, "", 200, ""},
		{"GET", "http://" + appHost + "/c/none", api, "", 404, ""},
		{"GET", "http://" + appHost + "/.well-known/acme-challenge/none", api, "", 404, "no such challenge"},
		{"POST", "http://" + appHost + "/.well-known/acme-challenge/none", api, "", 405, ""},
	} {
		header := []string{"Accept", x.accept}
		if x.key != "" {
			header = append(header, "Authorization", "Bearer "+x.key)
		}
		answer, text := n.get(c, x.method, x.url, header...)
		got := text
		if x.status == 308 {
			got = answer.Header.Get("Location")
		}
		if answer.StatusCode != x.status || !strings.Contains(got, x.want) || x.status == 308 && !strings.HasPrefix(got,
			x.want) || strings.Contains(answer.Header.Get("Strict-Transport-Security"), "max-age") {
			t.Errorf("%s %s: %d %q; want %d %q", x.method, x.url, answer.StatusCode, got, x.status, x.want)
		}
	}
}

// A trusted proxy says whether a request was encrypted; nobody else may say it.
func TestPlainHTTPBehindAProxy(t *testing.T) {
	t.Parallel()
	p := migratedInstallation(t, "sqlite")
	n := p.startSecure()
	for _, x := range []struct {
		from, proto string
		status      int
	}{
		{"127.0.0.2", "https", 200}, {"127.0.0.2", "http, HTTPS", 200}, {"127.0.0.2", "https, http", 403},
		{"127.0.0.2", "http", 403}, {"127.0.0.2", "", 403}, {"127.0.0.1", "https", 403},
	} {
		transport := &http.Transport{DisableKeepAlives: true,
			DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(x.from)}}).DialContext}
		header := []string{"Authorization", "Bearer " + n.key}
		if x.proto != "" {
			header = append(header, "X-Forwarded-Proto", x.proto)
		}
		answer, text := n.get(&http.Client{Transport: transport}, "GET", n.url+"/domains", header...)
		if answer.StatusCode != x.status {
			t.Errorf("from %s with %q: %d %s", x.from, x.proto, answer.StatusCode, text)
		}
	}
}

// A node without the role api answers challenges for its SMTP listeners, and how it is, and nothing else.
func TestMailNodeAnswersChallenges(t *testing.T) {
	t.Parallel()
	p := migratedInstallation(t, "sqlite")
	a := certstest.New(t, 0)
	for name, value := range map[string]string{"ACME": "true", "ACME_DIRECTORY": a.Directory, "ACME_CA_FILE": a.CAFile,
		"HOSTNAME": mailHost, "ROLES": "receiving", "SMTP_IN_LISTEN": "127.0.0.1:0"} {
		p.vars["POSTRIDER_"+name] = value
	}
	n := &secureNode{a: a, started: p.start()}
	if !n.ServesHTTP() {
		t.Fatal("the node opens no listener for challenges")
	}
	a.HTTP.To(strings.TrimPrefix(n.url, "http://"))
	eventually(t, "a certificate", func() bool {
		all, err := n.Certificates(t.Context())
		return err == nil && len(all) == 1 && !all[0].NotAfter.IsZero()
	})
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/emails": 404, "/app": 404, "/c/x": 404} {
		if answer, text := n.get(http.DefaultClient, "GET", n.url+path); answer.StatusCode != want {
			t.Errorf("%s: %d %s", path, answer.StatusCode, text)
		}
	}
}

// A node with certificate files that cannot work does not start, and names the setting.
func TestServeRefusesCertificates(t *testing.T) {
	t.Parallel()
	p := migratedInstallation(t, "sqlite")
	file := p.dir + "/secret.key" // a file without a certificate
	p.refused("read tls_cert_file: open "+p.dir+"/none", "serve", "--http-listen=127.0.0.1:0", "--tls-cert-file="+p.dir+
		"/none", "--tls-key-file="+file)
	p.refused("read tls_cert_file: "+file+": the file contains no certificate", "serve", "--http-listen=127.0.0.1:0",
		"--tls-cert-file="+file, "--tls-key-file="+file)
	p.refused("https_listen (--https-listen): needs a certificate", "serve", "--https-listen=:443")
}
