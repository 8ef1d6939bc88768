package links_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/front/links"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/outbound/forwards"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/domains"
)

// A page shows what is asked. Only its button gives or takes the consent, because programs open links too.
func TestForwardingPages(t *testing.T) {
	t.Parallel()
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		var text string
		nothing := func(context.Context, *db.Tx, string, string, string) error { return nil }
		s := testnode.Must(forwards.New(forwards.Config{PublicURL: testnode.PublicURL}, forwards.Deps{DB: n.DB,
			Queue: n.Queue, Keys: n.Keys, Domains: n.Domains, Emails: n.Emails, Teams: n.Teams, Log: n.Log,
			LookupTXT: func(context.Context, string) ([]string, error) { return nil, nil },
			Received:  func(context.Context, string, string) (forwards.Message, error) { return forwards.Message{}, nil },
			Payload:   func(context.Context, string, string) (string, error) { return "", nil },
			CheckURL:  func(_, url string) (string, error) { return url, nil },
			Call:      func(context.Context, string, string, string, []byte, [][]byte) (int, error) { return 200, nil },
			Notify:    nothing,
			Mail: func(_ context.Context, _ *db.Tx, _, _, body string) error {
				text = body
				return nil
			}}))
		d := n.Verified(n.Acme.TeamID, domains.NewDomain{Name: "in.acme.example",
			Capabilities: domains.Capabilities{Receiving: new(true)}})
		r, err := s.Create(t.Context(), n.Acme.TeamID, d.ID, forwards.NewRule{Local: "sales", Address: "bob@b.example"})
		n.Must(err)
		stop := n.Run(s.Kinds()...)
		testnode.Until(t, "the mail is sent", func() bool { return n.Count(`SELECT COUNT(*) FROM jobs`) == 0 })
		stop()
		mux := http.NewServeMux()
		links.New(n.Emails, nil, n.Log).RegisterForwarding(mux, s)
		do := func(method, path, form string) (int, string) {
			req := httptest.NewRequest(method, path, strings.NewReader(form))
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, req)
			return w.Code, w.Body.String()
		}
		link := func(kind string) string {
			_, rest, _ := strings.Cut(text, testnode.PublicURL+"/forwarding/"+kind+"/")
			token, _, _ := strings.Cut(rest, "\n")
			return "/forwarding/" + kind + "/" + token
		}
		state := func() forwards.State {
			got, err := s.Get(t.Context(), n.Acme.TeamID, d.ID, r.ID)
			n.Must(err)
			return got.State()
		}
		for _, test := range []struct {
			method, path, form, want string
			code                     int
			state                    forwards.State
		}{
			{"GET", link("confirm"), "", "Yes, forward it to me", 200, forwards.Waiting},
			{"HEAD", link("confirm"), "", "", 200, forwards.Waiting},
			{"GET", link("refuse"), "", "Refuse</button>", 200, forwards.Waiting},
			{"POST", link("confirm"), "", "cannot be read", 400, forwards.Waiting},
			{"POST", link("confirm") + "x", "answer=1", "This link is not complete. Your mail program may have cut it", 404, forwards.Waiting},
			{"POST", link("confirm"), "answer=1", "Mail is forwarded to bob@b.example", 200, forwards.Active},
			{"GET", link("confirm"), "", "sales@in.acme.example", 200, forwards.Active},
			{"POST", link("refuse"), "answer=1", "No mail is forwarded", 200, forwards.Refused},
			{"GET", link("refuse"), "", "cannot ask you again", 200, forwards.Refused},
			{"POST", link("confirm"), "answer=1", "Mail is forwarded", 200, forwards.Active},
		} {
			code, body := do(test.method, test.path, test.form)
			if code != test.code || !strings.Contains(body, test.want) || state() != test.state {
				t.Errorf("%s %.30s: %d, state %s, %s", test.method, test.path, code, state(), body)
			}
		}
		expired := "/forwarding/confirm/" + n.Keys.Sign("forward-confirm", n.DB.Now().Add(-time.Second), "a", "b")
		if code, body := do("GET", expired, ""); code != 404 || !strings.Contains(body, "has expired") {
			t.Errorf("an expired link: %d %s", code, body)
		}
		confirm, refuse := link("confirm"), link("refuse")
		for path, want := range map[string]string{expired: "<h1>This link has expired</h1>\n<p>Ask the team",
			confirm[:len(confirm)-9]: "<h1>This link is not complete</h1>\n<p>Your mail program may have cut it: copy the whole link",
			refuse[:len(refuse)-1]:   "<h1>This link is not complete</h1>", "/forwarding/confirm/": "<h1>This link is not complete</h1>",
			"/forwarding/ref": "<h1>This link is not complete</h1>"} {
			req := httptest.NewRequest("GET", path, http.NoBody)
			req.Header.Set("Accept", "text/html,*/*;q=0.8") // as browsers do
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, req)
			if body := w.Body.String(); w.Code != 404 || !strings.Contains(body, want) {
				t.Errorf("%.30s in a browser: %d %s", path, w.Code, body)
			}
		}
	})
}
