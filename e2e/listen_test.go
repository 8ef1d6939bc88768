package e2e

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// heard collects the webhooks that reached the developer's local receiver.
type heard struct {
	mu   sync.Mutex
	got  []http.Header
	body []string
}

func (h *heard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.got, h.body = append(h.got, r.Header), append(h.body, string(text))
	w.WriteHeader(http.StatusAccepted)
}

// count returns the number of received messages with the given event type.
func (h *heard) count(typ string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, b := range h.body {
		if strings.HasPrefix(b, `{"type":"`+typ+`"`) {
			n++
		}
	}
	return n
}

// verify checks a signature according to Standard Webhooks, without the program's own signing code.
func (h *heard) verify(t *testing.T, secret string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for i, g := range h.got {
		for _, prefix := range []string{"svix-", "webhook-"} {
			mac := hmac.New(sha256.New, key)
			mac.Write([]byte(g.Get(prefix+"id") + "." + g.Get(prefix+"timestamp") + "." + h.body[i]))
			if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); g.Get(prefix+"signature") != want {
				t.Errorf("message %d: %ssignature %q, want %q", i, prefix, g.Get(prefix+"signature"), want)
			}
		}
		if ids[g.Get("svix-id")] {
			t.Errorf("message %s came twice", g.Get("svix-id"))
		}
		ids[g.Get("svix-id")] = true
		if !json.Valid([]byte(h.body[i])) || g.Get("Content-Type") != "application/json" {
			t.Errorf("message %d is %s %q", i, g.Get("Content-Type"), h.body[i])
		}
	}
}

// said collects the output of a program.
type said struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// TestListen: signed events reach the developer's receiver as they happen. A server restart interrupts the event
// stream, but no event is lost or duplicated. Ctrl-C ends the listen command.
func TestListen(t *testing.T) {
	n := start(t, nil)
	var h heard
	receiver := httptest.NewServer(&h)
	defer receiver.Close()

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out said
	c := exec.CommandContext(ctx, binary, "listen", "--forward-to", receiver.URL+"/hook", "--url", "http://"+n.addr)
	c.Env = append(environ(), "POSTRIDER_API_KEY="+key)
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if t.Failed() {
			t.Logf("listen said:\n%s", out.String())
		}
	}()
	eventually(t, 20*time.Second, "it watches", func() bool { return strings.Contains(out.String(), "Watching") })
	secret := regexp.MustCompile(`whsec_\S+`).FindString(out.String())

	n.addDomain("example.org")
	n.must(http.MethodPost, "/emails", `{"from":"a@example.org","to":"b@example.net","subject":"s","text":"t"}`, nil)
	eventually(t, 20*time.Second, "the email's events arrive", func() bool {
		return h.count("domain.created") == 1 && h.count("email.sent") == 1 && h.count("email.delivered") == 1
	})
	var metrics struct{ Totals map[string]float64 }
	n.must(http.MethodGet, "/emails/metrics?metrics=sent,delivery_rate", "", &metrics)
	if metrics.Totals["sent"] != 1 || metrics.Totals["delivery_rate"] != 100 {
		t.Errorf("metrics %v", metrics.Totals)
	}
	var usage struct {
		Emails struct{ Daily struct{ Used int } }
	}
	n.must(http.MethodGet, "/usage", "", &usage)
	if usage.Emails.Daily.Used != 1 {
		t.Errorf("usage %+v", usage)
	}
	n.kill()
	n.launch()
	n.must(http.MethodPost, "/suppressions", `{"email":"c@example.net"}`, nil)
	eventually(t, 30*time.Second, "what happened after the restart arrives",
		func() bool { return h.count("suppression.added") == 1 })
	if got := h.count("domain.created"); got != 1 {
		t.Errorf("domain.created came %d times", got)
	}
	h.verify(t, secret)
	if !regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d  email\.delivered +msg_[0-9a-f]{32}  202 Accepted in `).MatchString(
		out.String()) {
		t.Error("there is no line of the event and its answer")
	}

	c.Process.Signal(syscall.SIGINT)
	if err := c.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v", err)
	}
	// A server with an open event stream must stop immediately.
	began := time.Now()
	n.cmd.Process.Signal(syscall.SIGTERM)
	if err := n.cmd.Wait(); err != nil {
		t.Errorf("the server stops with %v after %v", err, time.Since(began))
	}
	n.cmd = nil

	_, errOut, err := command(t, []string{"POSTRIDER_API_KEY=", "RESEND_API_KEY="}, "listen")
	if err == nil || !strings.Contains(errOut, "--api-key") {
		t.Errorf("without a key: %s %v", errOut, err)
	}
}

// TestListenRefused: with an invalid API key, the listen command prints the server's error and exits.
func TestListenRefused(t *testing.T) {
	n := start(t, nil)
	_, errOut, err := command(t, nil, "listen", "--url", "http://"+n.addr, "--api-key", "re_wrong")
	if err == nil || !strings.Contains(errOut, "401") {
		t.Errorf("%s %v", errOut, err)
	}
	_, errOut, err = command(t, nil, "listen", "--url", "http://"+n.addr, "--api-key", key, "--events", "nonsense")
	if err == nil || !strings.Contains(errOut, "nonsense") {
		t.Errorf("%s %v", errOut, err)
	}
}

// The request log must contain all requests, including those made just before the program stopped.
func TestRequestLog(t *testing.T) {
	n := start(t, nil)
	for range 20 {
		n.must(http.MethodGet, "/domains", "", nil)
	}
	n.cmd.Process.Signal(syscall.SIGTERM)
	n.cmd.Wait()
	n.launch()
	var logs struct {
		Data []struct{ Endpoint string }
	}
	n.must(http.MethodGet, "/logs?limit=100&endpoint=/domains", "", &logs)
	if len(logs.Data) != 20 {
		t.Errorf("%d requests are in the log", len(logs.Data))
	}
}
