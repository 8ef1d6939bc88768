package probe_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/platform/probe"
)

func dial(ctx context.Context, network, address string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, address)
}

func TestTalkSMTP(t *testing.T) {
	t.Parallel()
	ca := smtptest.NewCA(t)
	names := []string{"mx.test"}
	expired := &tls.Config{Certificates: []tls.Certificate{ca.Expired(names...)}}
	for _, c := range []struct {
		name     string
		config   smtptest.Config
		host     string
		strange  bool // the client does not know the authority
		starttls bool
		problem  string // of the certificate
	}{
		{name: "good", config: smtptest.Config{TLS: ca.ServerTLS(names...)}, host: "mx.test", starttls: true},
		{name: "implicit", config: smtptest.Config{TLS: ca.ServerTLS(names...), Implicit: true}, host: "mx.test",
			starttls: true},
		{name: "without TLS", host: "mx.test"},
		{name: "expired", config: smtptest.Config{TLS: expired}, host: "mx.test", starttls: true, problem: "it expired on "},
		{name: "other name", config: smtptest.Config{TLS: ca.ServerTLS(names...)}, host: "other.test", starttls: true,
			problem: "it does not cover the host other.test"},
		{name: "unknown authority", config: smtptest.Config{TLS: ca.ServerTLS(names...)}, host: "mx.test", strange: true,
			starttls: true, problem: "no known authority"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := smtptest.NewServer(t, c.config)
			o := probe.Mail{Hello: "client.test", Host: c.host, Implicit: c.config.Implicit, Roots: ca.Pool()}
			if c.strange {
				o.Roots = smtptest.NewCA(t).Pool()
			}
			got := probe.TalkSMTP(t.Context(), dial, s.Addr, o)
			if got.Problem != "" || !got.Reached || got.Name != "mx.test" && got.Name != "hello" ||
				!strings.HasPrefix(got.Greeting, "mx.test") || got.StartTLS != c.starttls || got.Address != s.Addr {
				t.Errorf("%+v", got)
			}
			if c.starttls != (got.Certificate != nil) {
				t.Fatalf("certificate %+v", got.Certificate)
			}
			if x := got.Certificate; x != nil && (!strings.HasPrefix(x.Problem, c.problem) ||
				c.problem == "" && x.Problem != "" || len(x.Names) != 1 || x.Names[0] != "mx.test" ||
				x.Issuer != "smtptest authority" || x.NotAfter.IsZero()) {
				t.Errorf("certificate %+v", x)
			}
		})
	}
}

// Hosts that do not speak SMTP, or say something strange, lead to a problem in a few words.
func TestStrangeHosts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, dialogue, problem, greeting string }{
		{"refusal", "S: 554 no \x07service", "the greeting is 554 no ?service", "no ?service"},
		{"web server", "S: HTTP/1.1 400 Bad Request", "the greeting is not SMTP", ""},
		{"silence", "(drop)", "the connection ended before the greeting", ""},
		{"no EHLO", "S: 220 hi\nC: EHLO client.test\nS: 502 no", "the reply to EHLO is 502 no", "hi"},
		{"no TLS", "S: 220 hi\nC: EHLO client.test\nS: 250-Hi.Test. there\nS: 250 STARTTLS\nC: STARTTLS\nS: 454 not now",
			"the reply to STARTTLS is 454 not now", "hi"},
		{"endless", "(endless lines)", "the greeting is too long", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := smtptest.Script(t, c.dialogue)
			got := probe.TalkSMTP(t.Context(), dial, s.Addr, probe.Mail{Hello: "client.test", Host: "mx.test"})
			if !got.Reached || !strings.Contains(got.Problem, c.problem) || c.greeting != "" && got.Greeting != c.greeting ||
				len(got.Greeting) > 210 {
				t.Errorf("%+v", got)
			}
		})
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if got := probe.TalkSMTP(t.Context(), dial, l.Addr().String(), probe.Mail{}); got.Reached ||
		!strings.HasPrefix(got.Problem, "no connection: ") {
		t.Errorf("nobody: %+v", got)
	}
}

func TestRequest(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", at.Format(http.TimeFormat))
		switch r.URL.Path {
		case "/moved":
			http.Redirect(w, r, "/", http.StatusFound)
		case "/missing":
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, "proof")
		default:
			fmt.Fprint(w, "proof")
		}
	}))
	t.Cleanup(s.Close)
	for path, want := range map[string]probe.Web{
		"/":        {Reached: true, Status: 200, Expected: true},
		"/missing": {Reached: true, Status: 404},
		"/moved":   {Reached: true, Status: 302},
	} {
		got := probe.Request(t.Context(), dial, probe.Page{URL: s.URL + path, Expect: []string{"x", "proof"}})
		if got.Certificate == nil || got.Certificate.Problem == "" || !got.Date.Equal(at) {
			t.Errorf("%s: %+v, certificate %+v", path, got, got.Certificate)
		}
		got.Certificate, got.Date = nil, time.Time{}
		if got != want {
			t.Errorf("%s: %+v", path, got)
		}
	}
	if got := probe.Request(t.Context(), dial, probe.Page{URL: s.URL}); got.Expected {
		t.Error("no body is expected, but the body counts")
	}
	url := s.URL
	s.Close()
	got := probe.Request(t.Context(), dial, probe.Page{URL: url})
	if got.Reached || !strings.HasPrefix(got.Problem, "no answer: ") {
		t.Errorf("closed: %+v", got)
	}
}
