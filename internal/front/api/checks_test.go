package api

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// The request type for checking a draft has the same JSON fields as the request type for sending an email.
func TestDraftsHaveTheFieldsOfEmails(t *testing.T) {
	t.Parallel()
	fields := func(t reflect.Type) (all []string) {
		for f := range t.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			all = append(all, name+" "+f.Type.String())
		}
		slices.Sort(all)
		return all
	}
	draft := slices.DeleteFunc(fields(reflect.TypeFor[checkEmailIn]()), func(f string) bool {
		return f == "email_id string"
	})
	if diff := gocmp.Diff(fields(reflect.TypeFor[sendEmailIn]()), draft); diff != "" {
		t.Errorf("of an email -, of a draft +: %s", diff)
	}
	in := &checkEmailIn{}
	v := reflect.ValueOf(in).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.String:
			f.SetString("x")
		case reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
		case reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
		}
	}
	out := reflect.ValueOf(in.draft()).Elem()
	for i := range out.NumField() {
		if out.Field(i).IsZero() {
			t.Errorf("the field %s of a draft is lost", out.Type().Field(i).Name)
		}
	}
}

// checked returns the levels of the checks in a response, keyed by the name of the check.
func (f *fixture) checked(t *testing.T, request string) map[string]string {
	t.Helper()
	w := f.do(t, request)
	var answer emailChecksWire
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != 200 || answer.Object != "email_checks" {
		t.Fatalf("%s: %d %s", request, w.Code, w.Body)
	}
	levels, worst := map[string]string{}, "pass"
	order := []string{"pass", "info", "warning", "problem"}
	for _, r := range answer.Data {
		levels[r.ID] = r.Level
		if slices.Index(order, r.Level) > slices.Index(order, worst) {
			worst = r.Level
		}
	}
	if answer.Level != worst {
		t.Errorf("%s: %s in all, and the worst is %s", request, answer.Level, worst)
	}
	return levels
}

func wantLevels(t *testing.T, what string, got map[string]string, pairs ...string) {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if got[pairs[i]] != pairs[i+1] {
			t.Errorf("%s: %s is %q, want %q", what, pairs[i], got[pairs[i]], pairs[i+1])
		}
	}
}

// The checks take into account the sender domain's return path, DKIM keys, tracking settings and DNS records.
func TestChecksOfADomain(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{DNS: resolve.Fake{
			TXTRecords: map[string][]string{"_dmarc.example.org": {"v=DMARC1; p=reject; aspf=s"},
				"send.example.org": {"v=spf1 a:x.example.org ~all"}},
			AddrRecords: map[string][]netip.Addr{"x.example.org": {netip.MustParseAddr("192.0.2.1")}}}})
		domain := f.verified("example.org")
		draft := func(from, key string) string {
			return "POST /emails/checks\nAuthorization: " + key + "\n\n" + `{"from":"` + from +
				`","subject":"s","html":"<a href=\"https://bank.com/\">https://bank.com/</a>"}`
		}
		own := draft("a@example.org", "full")
		wantLevels(t, "a draft", f.checked(t, own), "sender", "pass", "dkim", "pass", "spf", "pass", "dmarc", "pass",
			"alignment", "info", "text_part", "pass", "link_text", "pass")

		// A tracked link points to a different host than its link text, but only after the tracking host has been verified.
		set := func(text string) {
			t.Helper()
			if err := d.Update(t.Context(), func(tx *db.Tx) error {
				_, err := tx.Exec(t.Context(), `UPDATE domains SET `+text+` WHERE id = $1`, db.ID(domain.ID))
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		set(`tracking_subdomain = 'links', click_tracking = TRUE`)
		wantLevels(t, "an unverified host of links", f.checked(t, own), "link_text", "pass")
		set(`checks = REPLACE(checks, '"dkim":', '"tracking":{"status":"verified"},"dkim":')`)
		wantLevels(t, "a verified host of links", f.checked(t, own), "link_text", "warning")

		wantLevels(t, "another domain", f.checked(t, draft("a@unknown.org", "full")), "sender", "problem", "dkim", "problem",
			"spf", "info", "dmarc", "warning")
		_, f.keys["one domain"] = f.Key(f.Acme.TeamID, teams.NewKey{Name: "one domain", Permission: teams.SendingAccess,
			DomainID: domain.ID})
		f.verified("second.org")
		wantLevels(t, "a domain of another key", f.checked(t, draft("a@second.org", "one domain")), "sender", "problem",
			"dkim", "problem", "spf", "info")
		wantLevels(t, "the same domain", f.checked(t, draft("a@second.org", "full")), "sender", "pass")
	})
}

// The checks report a domain's missing DNS records as a problem, although the node continues to accept emails from the
// domain for some time.
func TestChecksOfADomainThatIsGoing(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{DNS: resolve.Fake{Fail: []string{"_dmarc.example.org"}}})
		domain := f.verified("example.org")
		if err := d.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `UPDATE domains SET checks = REPLACE(checks, 'verified', 'temporary_failure')
				WHERE id = $1`, db.ID(domain.ID))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		got := f.checked(t, "POST /emails/checks\n\n"+`{"from":"a@example.org","text":"x"}`)
		wantLevels(t, "a domain that is going", got, "sender", "pass", "dkim", "problem", "spf", "problem", "dmarc", "info",
			"alignment", "pass", "subject", "warning")
	})
}

// The checks' DNS queries end when the client disconnects.
func TestChecksEndWithTheirClient(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 10)
	f := newFixture(t, dbtest.SQLite(t), Options{DNS: muteDNS{asked: asked}})
	f.verified("example.org")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/emails/checks",
		strings.NewReader(`{"from":"a@example.org","text":"x"}`))
	r.Header.Set("Authorization", "Bearer "+f.keys["full"])
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	if w.Code != 200 || strings.Count(w.Body.String(), "could not be looked up") != 2 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// muteDNS is a resolver that never responds.
type muteDNS struct {
	resolve.Resolver
	asked chan struct{}
}

func (w muteDNS) TXT(ctx context.Context, _ string) ([]string, error) {
	w.asked <- struct{}{}
	<-ctx.Done()
	return nil, resolve.ErrTemporary
}

// A request checks either a sent email or a draft, not both.
func TestChecksOfEitherAndWithASender(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.SQLite(t), Options{})
	f.verified("example.org")
	for name, value := range map[string]string{"to": `"a@example.org"`, "subject": `"s"`, "topic_id": `"x"`,
		"tags": `[{"name":"a","value":"b"}]`, "reply_to": `"a@example.org"`, "headers": `{"X-A":"b"}`,
		"scheduled_at": `"in 1 hour"`} {
		w := f.do(t, "POST /emails/checks\nAuthorization: full\n\n"+
			`{"email_id":"0199aaaa-0000-7000-8000-000000000000","`+name+`":`+value+`}`)
		if w.Code != 422 || !strings.Contains(w.Body.String(), "`email_id`") {
			t.Errorf("with %s: %d %s", name, w.Code, w.Body)
		}
	}
	made := f.do(t, "POST /templates\nAuthorization: full\n\n"+`{"name":"x","alias":"x","from":"{{{A}}} <a@example.org>",
		"subject":"s","html":"<p>{{{A}}} {{{UNSUBSCRIBE_URL}}}</p>","variables":[{"key":"A","type":"string"}]}`)
	if made.Code != 201 {
		t.Fatalf("%d %s", made.Code, made.Body)
	}
	request := "POST /templates/x/checks\nAuthorization: full\n\n" + `{"version":"draft","variables":{"A":"<,"}`
	if w := f.do(t, request+`}`); w.Code != 422 || !strings.Contains(w.Body.String(), "`from`") {
		t.Errorf("with the template's sender: %d %s", w.Code, w.Body)
	}
	wantLevels(t, "with another sender", f.checked(t, request+`,"from":"b@example.org"}`), "sender", "pass")
}

// The checks report links with a placeholder that is never replaced. Examples are any placeholder in a draft without a
// template, and the unsubscribe link in an email without a topic.
func TestChecksOfPlaceholders(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		f.verified("example.org")
		const html = `<p><a href=\"{{{LINK}}}\">x</a> <img alt=\"\" src=\"{{{LINK}}}\"></p>`
		check := func(request, body string) map[string]string {
			return f.checked(t, "POST "+request+"\n\n"+body)
		}
		wantLevels(t, "a draft", check("/emails/checks", `{"from":"a@example.org","html":"`+html+`"}`),
			"link_target", "problem")
		wantLevels(t, "a draft that cannot be left", check("/emails/checks",
			`{"from":"a@example.org","html":"<a href=\"{{{UNSUBSCRIBE_URL}}}\">x</a>"}`), "link_target", "problem")
		made := f.do(t, "POST /templates\nAuthorization: full\n\n"+`{"name":"x","alias":"x","from":"a@example.org",
			"subject":"s","html":"`+html+`","variables":[{"key":"LINK","type":"string"}]}`)
		if made.Code != 201 {
			t.Fatalf("%d %s", made.Code, made.Body)
		}
		if w := f.do(t, "POST /templates/x/publish\nAuthorization: full"); w.Code != 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		wantLevels(t, "a template", check("/templates/x/checks", `{"variables":{"LINK":"https://example.org/x"}}`),
			"link_target", "pass")
		wantLevels(t, "a draft by a template", check("/emails/checks",
			`{"template":{"id":"x","variables":{"LINK":"https://example.org/x"}}}`), "link_target", "pass")
		wantLevels(t, "a template with a value that is none", check("/templates/x/checks",
			`{"variables":{"LINK":"{{{OTHER}}}"}}`), "link_target", "problem")
	})
}
