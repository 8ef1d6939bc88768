package webhooks_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/outbound/webhooks"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// A receiver can verify a call like a webhook message, with the team's call secret.
func TestCall(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, config(), loopbackOnly)
		other, _ := f.Team("Other")
		x := receive(t, func(n int, w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/moved":
				http.Redirect(w, r, "/elsewhere", http.StatusFound)
			case "/full":
				w.WriteHeader(http.StatusTooManyRequests)
			}
		})
		headers := map[string]string{"X-Shop": "acme", "authorization": "Bearer t", "webhook-id": "forged"}
		body := `{"event":"order"}`
		status, err := f.Call(t.Context(), f.Acme.TeamID, "run_1.call", x.URL+"/hook", headers, []byte(body))
		if status != 200 || err != nil {
			t.Fatal(status, err)
		}
		got := x.all()[0]
		head := got.head
		if got.body != body || head.Get("X-Shop") != "acme" || head.Get("Authorization") != "Bearer t" ||
			head.Get("Content-Type") != "application/json" || head.Get("User-Agent") != "Postrider-Webhooks/test" {
			t.Errorf("%+v", got)
		}
		secret, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(f.CallSecret(f.Acme.TeamID), "whsec_"))
		must(t, err)
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte("run_1.call." + head.Get("Webhook-Timestamp") + "." + body))
		want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
		if head.Get("Webhook-Id") != "run_1.call" || head.Get("Webhook-Signature") != want {
			t.Errorf("the signature is %v, want %s", head, want)
		}
		if f.CallSecret(other.TeamID) == f.CallSecret(f.Acme.TeamID) {
			t.Error("two teams have one secret")
		}
		for path, want := range map[string]int{"/moved": 302, "/full": 429} {
			if status, err := f.Call(t.Context(), f.Acme.TeamID, "id", x.URL+path, nil, nil); status != want || err != nil {
				t.Errorf("%s: %d, %v", path, status, err)
			}
		}
		if n := len(x.all()); n != 3 {
			t.Errorf("%d requests, so a redirect was followed", n)
		}
	})
}

func TestCallFails(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		c := config()
		c.Timeout = 500 * time.Millisecond
		f := newFixture(t, d, c, loopbackOnly)
		x := receive(t, func(_ int, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		_, err := f.Call(t.Context(), f.Acme.TeamID, "id", x.URL+"/secret", nil, nil)
		if err == nil || !strings.Contains(err.Error(), "no answer in time") || strings.Contains(err.Error(), "secret") {
			t.Errorf("one that never answers: %v", err)
		}
		ended, end := context.WithCancelCause(t.Context())
		why := errors.New("the node stops")
		end(why)
		if _, err := f.Call(ended, f.Acme.TeamID, "id", x.URL, nil, nil); !errors.Is(err, why) {
			t.Errorf("while the node stops: %v", err)
		}
		f = newFixture(t, d, c, noLoopback)
		_, err = f.Call(t.Context(), f.Acme.TeamID, "id", x.URL+"/secret", nil, nil)
		if err == nil || !strings.Contains(err.Error(), "not public") || strings.Contains(err.Error(), "secret") {
			t.Errorf("an address of this machine: %v", err)
		}
	})
}

// If a receiver reads the request and closes the connection, Call reports that there was no response.
func TestCallClosed(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, config(), loopbackOnly)
		x := receive(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				conn.Close()
			}
		})
		status, err := f.Call(t.Context(), f.Acme.TeamID, "id", x.URL+"/secret", nil, []byte("{}"))
		if status != 0 || err == nil || !strings.Contains(err.Error(), "without an answer") ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%d, %v", status, err)
		}
	})
}

func TestChecksOfCalls(t *testing.T) {
	t.Parallel()
	many := map[string]string{}
	for len(many) <= webhooks.MaxCallHeaders {
		many["X-"+strings.Repeat("a", len(many)+1)] = ""
	}
	for name, c := range map[string]struct {
		headers map[string]string
		want    string // text in the fault, "" for none
	}{
		"none":            {nil, ""},
		"common ones":     {map[string]string{"Authorization": "Basic abc=", "X-Shop": "é"}, ""},
		"too many":        {many, "21 headers"},
		"no name":         {map[string]string{"": "a"}, "no name of an HTTP header"},
		"a space":         {map[string]string{"X Y": "a"}, "no name of an HTTP header"},
		"a long name":     {map[string]string{strings.Repeat("x", 101): "a"}, "no name of an HTTP header"},
		"a line break":    {map[string]string{"X-Y": "a\r\nHost: b"}, "X-Y"},
		"a long value":    {map[string]string{"X-Y": strings.Repeat("x", 2001)}, "X-Y"},
		"the host":        {map[string]string{"HOST": "b.example"}, "sets itself"},
		"a signature":     {map[string]string{"Webhook-Signature": "v1,"}, "sets itself"},
		"Svix's":          {map[string]string{"svix-id": "x"}, "sets itself"},
		"of a connection": {map[string]string{"Transfer-Encoding": "chunked"}, "sets itself"},
	} {
		err := webhooks.CheckHeaders("steps[0].config.headers", c.headers)
		switch f, ok := err.(*fault.Error); {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (!ok || f.Field != "steps[0].config.headers" || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestCheckURL(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		c := config()
		c.AllowHTTP = false
		f := newFixture(t, d, c, noLoopback)
		for url, ok := range map[string]bool{"https://shop.example/hook?x=1": true, "http://shop.example/hook": false,
			"https://127.0.0.1/": false, "ftp://shop.example": false, "shop.example": false} {
			_, err := f.CheckURL("url", url)
			if f, refused := err.(*fault.Error); ok != (err == nil) || refused && f.Field != "url" {
				t.Errorf("%s: %v", url, err)
			}
		}
	})
}
