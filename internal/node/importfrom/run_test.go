package importfrom_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/node/importfrom"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/outbound/webhooks"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/suppressions"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// account is a source that holds its pages in memory.
type account struct {
	pages map[importfrom.Kind][]importfrom.Page
	// before is called before a page is returned; an error is that of the product.
	before func(kind importfrom.Kind, page int) error
}

func (a *account) Kinds() []importfrom.Kind { return importfrom.Kinds() }

func (a *account) Page(_ context.Context, kind importfrom.Kind, cursor string) (p importfrom.Page, err error) {
	i := 0
	if cursor != "" {
		fmt.Sscan(cursor, &i)
	}
	if a.before != nil {
		if err := a.before(kind, i); err != nil {
			return p, err
		}
	}
	if i < len(a.pages[kind]) {
		p = a.pages[kind][i]
	}
	if i+1 < len(a.pages[kind]) {
		p.Next = fmt.Sprint(i + 1)
	}
	return p, nil
}

// world is a node with the service of webhooks.
type world struct {
	*testnode.Node
	hooks *webhooks.Service
	team  string
	state string
}

func each(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		hooks := testnode.Must(webhooks.New(webhooks.Config{}, webhooks.Deps{DB: n.DB, Queue: n.Queue, Keys: n.Keys,
			Guard: n.Guard, Domains: n.Domains, Log: n.Log,
			Notify: func(context.Context, *db.Tx, string, string, string) error { return nil }}))
		n.Recorder.Listen(hooks)
		f(t, &world{n, hooks, n.Other.TeamID, filepath.Join(t.TempDir(), "state.json")})
	})
}

// run imports an account and returns the counts that are not zero, as "kind: 2 created".
func (w *world) run(a *account, dry bool, only ...importfrom.Kind) ([]string, *importfrom.Report, error) {
	r, err := importfrom.Run(w.T.Context(), importfrom.Deps{DB: w.DB, Contacts: w.Contacts, Domains: w.Domains,
		Templates: w.Templates, Suppressions: w.Suppressions, Webhooks: w.hooks}, importfrom.Options{TeamID: w.team,
		Source: a, Name: "test", DryRun: dry, State: w.state, Only: only})
	if r == nil {
		return nil, nil, err
	}
	var all []string
	for _, kind := range importfrom.Kinds() {
		c := r.Counts[kind]
		if c == nil {
			continue
		}
		for _, x := range []struct {
			what string
			n    int64
		}{{"created", c.Created}, {"completed", c.Completed}, {"kept", c.Kept}, {"differing", c.Differing},
			{"refused", c.Refused}, {"opted out", c.OptedOut}} {
			if x.n > 0 {
				all = append(all, fmt.Sprintf("%s: %d %s", kind, x.n, x.what))
			}
		}
	}
	return all, r, err
}

func (w *world) check(name string, want, got []string, err error) {
	w.T.Helper()
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		w.T.Errorf("%s: %v %s", name, err, diff)
	}
}

func sample() *account {
	return &account{pages: map[importfrom.Kind][]importfrom.Page{
		importfrom.Domains: {{Domains: []importfrom.Domain{
			{Name: "Mail.Example.com", ReturnPath: "bounce", OpenTracking: true, Sending: true},
			{Name: testnode.Domain, Sending: true}, {Name: "co.uk", Sending: true}}}},
		importfrom.Properties: {{Properties: []importfrom.Property{{Key: "seats", Type: scalar.Number},
			{Key: "email", Type: scalar.String}}}},
		importfrom.Segments: {{Segments: []importfrom.Segment{{ID: "1", Name: "Readers"}, {ID: "2", Name: "Readers"}}}},
		importfrom.Topics: {{Topics: []importfrom.Topic{{ID: "a", Name: "News", Default: contacts.OptIn, Public: true},
			{ID: "b", Name: strings.Repeat("x", 60), Default: contacts.OptOut}}}},
		importfrom.Templates: {{Templates: []importfrom.Template{
			{Name: "Order", Alias: "order", Subject: "{{{ITEM}}}", HTML: "<p>{{{ITEM}}}</p>", Published: true,
				Variables: []importfrom.Variable{{Key: "ITEM", Type: scalar.String}}},
			{Name: "Broken", HTML: "{{{ITEM}}}", Published: true},
			{Name: "Bad", Alias: "no spaces", HTML: "x"}}}},
		importfrom.Suppressions: {{Suppressions: []importfrom.Suppression{
			{Address: "bounced@example.net", Origin: suppressions.Bounce}, {Address: "nobody", Origin: "bounce"}}}},
		importfrom.Contacts: {{Contacts: []importfrom.Contact{
			{Address: "Ann@example.net", FirstName: "Ann", Segments: []string{"1", "2", "unknown"},
				Values: map[string]scalar.Value{"seats": scalar.OfText("12"), "city": scalar.OfText("Graz"),
					"email": scalar.OfText("x")}}}}, {Contacts: []importfrom.Contact{
			{Address: "bob@example.net", Unsubscribed: true, Values: map[string]scalar.Value{"seats": scalar.OfText("many")},
				Topics: []importfrom.Choice{{TopicID: "a", Subscription: contacts.OptOut},
					{TopicID: "b", Subscription: contacts.OptOut, Effective: true}}},
			{Address: "not an address"}}}},
		importfrom.Members: {{Contacts: []importfrom.Contact{{Address: "bob@example.net", Segments: []string{"2"}}}}},
		importfrom.Webhooks: {{Webhooks: []importfrom.Webhook{{URL: "https://hooks.example.com", Events: []string{"email.sent"}},
			{URL: "http://hooks.example.com", Events: []string{"email.sent"}}}}},
	}}
}

// An import writes all kinds, refuses what breaks a rule, sends nothing and records no events of contacts. A dry run
// before it reports the same and writes nothing. A second import finds everything there.
func TestRun(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		want := []string{"domains: 1 created", "domains: 2 refused", "properties: 2 created", "properties: 1 refused",
			"segments: 2 created", "topics: 2 created", "templates: 2 created", "templates: 1 refused",
			"suppressions: 1 created", "suppressions: 1 refused", "contacts: 2 created", "contacts: 1 refused",
			"members: 1 completed", "webhooks: 1 created", "webhooks: 1 refused"}
		planned, _, err := w.run(sample(), true)
		// A dry run does not know the members' contacts.
		w.check("dry run", append(slices.Clone(want[:12]), "members: 1 created", want[13], want[14]), planned, err)
		for _, table := range []string{"contacts", "segments", "topics", "suppressions", "webhooks"} {
			if n := w.Count(`SELECT COUNT(*) FROM ` + table); n > 0 {
				t.Errorf("a dry run wrote %d %s", n, table)
			}
		}
		if _, err := os.Stat(w.state); err == nil {
			t.Error("a dry run left a state file")
		}
		got, r, err := w.run(sample(), false)
		w.check("import", want, got, err)
		left := map[importfrom.LeftOut]bool{}
		for _, x := range r.LeftOut {
			left[x] = true
		}
		if diff := cmp.Diff(map[importfrom.LeftOut]bool{{What: "members of segments that were not imported", Count: 1}: true,
			{What: "values of the property email", Count: 1}: true,
			{What: "values of the property seats", Count: 1}: true}, left); diff != "" {
			t.Error(diff)
		}
		if len(r.Items[0].Records) < 4 || !strings.Contains(r.Items[0].Records[0].Name, "bounce.mail.example.com") {
			t.Errorf("the domain is reported as %+v", r.Items[0])
		}
		ann := testnode.Must(w.Contacts.Member(ctx, w.team, "", "ann@example.net"))
		if ann.FirstName != "Ann" || ann.Properties["seats"] != scalar.OfNumber(12) ||
			ann.Properties["city"].Text != "Graz" || len(ann.Properties) != 2 {
			t.Errorf("Ann is %+v", ann)
		}
		all, _, err := w.Contacts.SegmentsOf(ctx, w.team, "ann@example.net", page.Page{})
		if err != nil || len(all) != 2 || all[0].Name != "Readers (2)" || all[1].Name != "Readers" {
			t.Errorf("Ann's segments: %+v, %v", all, err)
		}
		if bob := testnode.Must(w.Contacts.Get(ctx, w.team, "bob@example.net")); !bob.Unsubscribed {
			t.Error("Bob is subscribed")
		}
		if order, v, err := w.Templates.Get(ctx, w.team, "order"); err != nil || !order.Published() || len(v.Variables) != 1 {
			t.Errorf("the template is %+v, %+v, %v", order, v.Variables, err)
		} else {
			v.Close()
		}
		hooks, _, err := w.hooks.List(ctx, w.team, page.Page{})
		if err != nil || len(hooks) != 1 || hooks[0].Status != webhooks.Disabled || hooks[0].DisabledAt.IsZero() {
			t.Errorf("the webhooks are %+v, %v", hooks, err)
		}
		for _, table := range []string{"emails", "webhook_messages"} {
			if n := w.Count(`SELECT COUNT(*) FROM ` + table); n > 0 {
				t.Errorf("the import added %d %s", n, table)
			}
		}
		got, _, err = w.run(sample(), false)
		w.check("again", []string{"domains: 1 kept", "domains: 2 refused", "properties: 1 kept", "properties: 1 refused",
			"segments: 2 kept", "topics: 2 kept", "templates: 2 kept", "templates: 1 refused", "suppressions: 1 kept",
			"suppressions: 1 refused", "contacts: 2 kept", "contacts: 1 refused", "members: 1 kept", "webhooks: 1 kept",
			"webhooks: 1 refused"}, got, err)
		if n := w.Count(`SELECT COUNT(*) FROM segments`); n != 2 {
			t.Errorf("%d segments", n)
		}
	})
}

// Contacts that are imported alone, after their topics, keep their unsubscribes, and come with their suppressions.
func TestOnly(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		got, _, err := w.run(sample(), false, importfrom.Topics)
		w.check("topics", []string{"topics: 2 created"}, got, err)
		want := []string{"segments: 2 created", "topics: 2 kept", "suppressions: 1 created", "suppressions: 1 refused",
			"contacts: 2 created", "contacts: 1 refused"}
		planned, _, err := w.run(sample(), true, importfrom.Contacts)
		w.check("dry run", slices.DeleteFunc(planned, func(line string) bool {
			return strings.HasPrefix(line, "properties")
		}), want, err)
		got, r, err := w.run(sample(), false, importfrom.Contacts)
		w.check("contacts", slices.DeleteFunc(got, func(line string) bool {
			return strings.HasPrefix(line, "properties")
		}), want, err)
		for _, left := range r.LeftOut {
			if strings.HasPrefix(left.What, "subscriptions") {
				t.Errorf("left out: %+v", left)
			}
		}
		for _, s := range testnode.Must(w.Contacts.Subscriptions(ctx, w.team, "bob@example.net")) {
			if s.Name == "News" && s.Subscription != contacts.OptOut {
				t.Errorf("Bob and the topic: %+v", s)
			}
		}
		got, _, err = w.run(sample(), false, importfrom.Members)
		w.check("members", []string{"segments: 2 kept", "topics: 2 kept", "suppressions: 1 kept", "suppressions: 1 refused",
			"contacts: 2 kept", "contacts: 1 refused", "members: 1 completed"}, slices.DeleteFunc(got, func(line string) bool {
			return strings.HasPrefix(line, "properties")
		}), err)
	})
}

// Objects that exist with other data stay as they are. Where two sources differ, the contact is unsubscribed.
func TestNothingIsOverwritten(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		if _, _, err := w.run(sample(), false); err != nil {
			t.Fatal(err)
		}
		other := &account{pages: map[importfrom.Kind][]importfrom.Page{
			importfrom.Domains:    {{Domains: []importfrom.Domain{{Name: "mail.example.com", Sending: true, Receiving: true}}}},
			importfrom.Properties: {{Properties: []importfrom.Property{{Key: "seats", Type: scalar.String}}}},
			importfrom.Topics:     {{Topics: []importfrom.Topic{{ID: "9", Name: "News", Default: contacts.OptOut}}}},
			importfrom.Templates: {{Templates: []importfrom.Template{{Name: "Another name", Alias: "order", HTML: "new"},
				{Name: "Broken", HTML: "new"}}}},
			importfrom.Suppressions: {{Suppressions: []importfrom.Suppression{{Address: "bounced@example.net", Origin: "manual"}}}},
			importfrom.Contacts: {{Contacts: []importfrom.Contact{
				{Address: "ann@example.net", FirstName: "Anna", Unsubscribed: true},
				{Address: "bob@example.net", Topics: []importfrom.Choice{{TopicID: "9", Subscription: contacts.OptIn}}}}}},
		}}
		want := []string{"domains: 1 differing", "properties: 1 differing", "topics: 1 differing", "templates: 2 differing",
			"suppressions: 1 kept", "contacts: 1 kept", "contacts: 1 differing", "contacts: 1 opted out"}
		for _, dry := range []bool{true, false} {
			got, _, err := w.run(other, dry)
			w.check(fmt.Sprint("dry ", dry), want, got, err)
		}
		if ann := testnode.Must(w.Contacts.Get(ctx, w.team, "ann@example.net")); ann.FirstName != "Ann" || !ann.Unsubscribed {
			t.Errorf("Ann is %+v", ann)
		}
		for _, s := range testnode.Must(w.Contacts.Subscriptions(ctx, w.team, "bob@example.net")) {
			if s.Name == "News" && (s.Subscription != contacts.OptOut || s.Default != contacts.OptIn) {
				t.Errorf("Bob and the topic: %+v", s)
			}
		}
		if _, v, err := w.Templates.Get(ctx, w.team, "order"); err != nil || v.HTML != "<p>{{{ITEM}}}</p>" {
			t.Errorf("the template is %q, %v", v.HTML, err)
		} else {
			v.Close()
		}
		if s := testnode.Must(w.Suppressions.Get(ctx, w.team, "bounced@example.net")); s.Origin != suppressions.Bounce {
			t.Errorf("the suppression is %+v", s)
		}
	})
}

// An import that fails continues with the page that failed. A page that was written, but whose cursor was not stored
// because of a kill, is written again without an effect, and its contacts are counted once.
func TestContinues(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		const pages, perPage = 5, 3
		a := sample()
		a.pages[importfrom.Contacts] = nil
		for i := range pages {
			var p importfrom.Page
			for k := range perPage {
				p.Contacts = append(p.Contacts, importfrom.Contact{Address: fmt.Sprintf("p%d-%d@example.net", i, k),
					Segments: []string{"2"}})
			}
			a.pages[importfrom.Contacts] = append(a.pages[importfrom.Contacts], p)
		}
		down := errors.New("the product is down")
		asked := map[string]int{}
		var before []byte
		a.before = func(kind importfrom.Kind, page int) error {
			asked[fmt.Sprint(kind, page)]++
			switch {
			case kind == importfrom.Contacts && page == 2:
				// This state is stored after page 0, while page 1 is written.
				before, _ = os.ReadFile(w.state)
			case kind == importfrom.Contacts && page == 3:
				return down
			}
			return nil
		}
		if _, _, err := w.run(a, false); !errors.Is(err, down) {
			t.Fatalf("the import ended with %v", err)
		}
		if n := w.Count(`SELECT COUNT(*) FROM contacts WHERE address LIKE 'p%'`); n != 9 {
			t.Errorf("%d contacts before the failure", n)
		}
		if err := os.WriteFile(w.state, before, 0o600); err != nil {
			t.Fatal(err)
		}
		a.before = nil
		got, r, err := w.run(a, false)
		if err != nil || r.Counts[importfrom.Contacts].Total() != pages*perPage || r.Counts[importfrom.Segments].Created != 2 {
			t.Fatalf("%v, %v", got, err)
		}
		// The state is that before pages 1 and 2 were counted: page 1 is known to be the import's own, page 2 is not.
		if c := r.Counts[importfrom.Contacts]; c.Created+c.Kept != pages*perPage || c.Created < 3*perPage {
			t.Errorf("counted as %+v", c)
		}
		if n := w.Count(`SELECT COUNT(*) FROM contacts WHERE address LIKE 'p%'`); n != pages*perPage {
			t.Errorf("%d contacts at the end", n)
		}
		if n := w.Count(`SELECT COUNT(*) FROM contact_segments`); n != pages*perPage+1 {
			t.Errorf("%d memberships", n)
		}
		if _, err := os.Stat(w.state); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the state file is still there: %v", err)
		}
		if asked["domains0"] != 1 {
			t.Errorf("the domains were asked for %d times before", asked["domains0"])
		}
	})
}

// A state file belongs to one source and one team, and to one process at a time.
func TestStateFile(t *testing.T) {
	t.Parallel()
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		hooks := testnode.Must(webhooks.New(webhooks.Config{}, webhooks.Deps{DB: n.DB, Queue: n.Queue, Keys: n.Keys,
			Guard: n.Guard, Domains: n.Domains, Log: n.Log,
			Notify: func(context.Context, *db.Tx, string, string, string) error { return nil }}))
		state := filepath.Join(t.TempDir(), "state.json")
		run := func(of string, a *account, restart bool) error {
			name, key, _ := strings.Cut(of, " ")
			_, err := importfrom.Run(t.Context(), importfrom.Deps{DB: n.DB, Contacts: n.Contacts, Domains: n.Domains,
				Templates: n.Templates, Suppressions: n.Suppressions, Webhooks: hooks}, importfrom.Options{
				TeamID: n.Other.TeamID, Source: a, Name: name, Key: key + "first-key", State: state, Restart: restart})
			return err
		}
		down := errors.New("down")
		a := &account{before: func(kind importfrom.Kind, _ int) error {
			if kind == importfrom.Topics {
				if err := run("test", &account{}, false); err == nil || !strings.Contains(err.Error(), "another import") {
					t.Errorf("a second import at the same time: %v", err)
				}
				return down
			}
			return nil
		}}
		if err := run("test", a, false); !errors.Is(err, down) {
			t.Fatal(err)
		}
		if info, err := os.Stat(state); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the state file: %v, %v", info, err)
		}
		if err := run("other", &account{}, false); err == nil || !strings.Contains(err.Error(), "--restart") {
			t.Errorf("another source: %v", err)
		}
		if err := run("test other-key", &account{}, false); err == nil || !strings.Contains(err.Error(), "another key") {
			t.Errorf("another key: %v", err)
		}
		if text, err := os.ReadFile(state); err != nil || strings.Contains(string(text), "first-key") {
			t.Errorf("the state file is %s, %v", text, err)
		}
		if err := run("other", &account{}, true); err != nil {
			t.Error(err)
		}
		if err := os.WriteFile(state, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := run("other", &account{}, false); err == nil || !strings.Contains(err.Error(), "begin again with --restart") {
			t.Errorf("a broken file: %v", err)
		}
		if err := run("other", &account{}, true); err != nil {
			t.Errorf("a broken file, ignored: %v", err)
		}
	})
}

// A source whose pages form a circle ends the import.
func TestCircle(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		a := &circle{}
		_, err := importfrom.Run(t.Context(), importfrom.Deps{DB: w.DB, Contacts: w.Contacts, Domains: w.Domains,
			Templates: w.Templates, Suppressions: w.Suppressions, Webhooks: w.hooks}, importfrom.Options{TeamID: w.team,
			Source: a, Name: "test", State: w.state})
		if err == nil || !strings.Contains(err.Error(), "same page") {
			t.Errorf("after %d pages: %v", a.pages, err)
		}
	})
}

// circle is a source with three pages that follow one another again and again.
type circle struct{ pages int }

func (c *circle) Kinds() []importfrom.Kind { return []importfrom.Kind{importfrom.Suppressions} }

func (c *circle) Page(context.Context, importfrom.Kind, string) (importfrom.Page, error) {
	if c.pages++; c.pages > 100 {
		return importfrom.Page{}, errors.New("the import goes in circles")
	}
	return importfrom.Page{Next: fmt.Sprint(c.pages % 3)}, nil
}

// Control characters in a name do not keep a contact from being unsubscribed. A subscription that may be the default of
// the source does not opt in an existing contact.
func TestConsent(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		before := &account{pages: map[importfrom.Kind][]importfrom.Page{
			importfrom.Topics:   {{Topics: []importfrom.Topic{{ID: "1", Name: "News", Default: contacts.OptOut}}}},
			importfrom.Contacts: {{Contacts: []importfrom.Contact{{Address: "ann@example.net"}, {Address: "bob@example.net"}}}},
		}}
		if _, _, err := w.run(before, false); err != nil {
			t.Fatal(err)
		}
		in := func(effective bool) []importfrom.Choice {
			return []importfrom.Choice{{TopicID: "2", Subscription: contacts.OptIn, Effective: effective}}
		}
		other := &account{pages: map[importfrom.Kind][]importfrom.Page{
			importfrom.Segments: {{Segments: []importfrom.Segment{{ID: "s", Name: "A\nB\x00  C"}}}},
			importfrom.Topics:   {{Topics: []importfrom.Topic{{ID: "2", Name: "News\x00", Default: contacts.OptIn}}}},
			importfrom.Contacts: {{Contacts: []importfrom.Contact{
				{Address: "ann@example.net", FirstName: "A\x00nn", LastName: "\x07\xff", Unsubscribed: true, Topics: in(true)},
				{Address: "bob@example.net", Topics: in(false)}, {Address: "cleo@example.net", Topics: in(true)}}}},
		}}
		got, _, err := w.run(other, false)
		w.check("import", []string{"segments: 1 created", "topics: 1 differing", "contacts: 1 created",
			"contacts: 2 completed", "contacts: 1 opted out"}, got, err)
		want := map[string]contacts.Subscription{"ann": contacts.OptOut, "bob": contacts.OptIn, "cleo": contacts.OptIn}
		for name, subscription := range want {
			for _, s := range testnode.Must(w.Contacts.Subscriptions(ctx, w.team, name+"@example.net")) {
				if s.Subscription != subscription {
					t.Errorf("%s: %+v", name, s)
				}
			}
		}
		if ann := testnode.Must(w.Contacts.Get(ctx, w.team, "ann@example.net")); !ann.Unsubscribed {
			t.Errorf("Ann is %+v", ann)
		}
		if n := w.Count(`SELECT COUNT(*) FROM segments WHERE name = 'A B  C'`); n != 1 {
			t.Error("the segment has another name")
		}
	})
}

// An unsubscribe that comes without a name does not keep the contact from getting one from a later page. What is set
// stays, and a name gets no part of another name.
func TestFillsWhatIsMissing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		a := &account{pages: map[importfrom.Kind][]importfrom.Page{importfrom.Contacts: {
			{Contacts: []importfrom.Contact{{Address: "ann@example.net", Unsubscribed: true}}},
			{Contacts: []importfrom.Contact{{Address: "ann@example.net", FirstName: "Ann",
				Values: map[string]scalar.Value{"city": scalar.OfText("Graz")}}}},
			{Contacts: []importfrom.Contact{{Address: "ann@example.net", FirstName: "Anna", LastName: "Lee",
				Values: map[string]scalar.Value{"city": scalar.OfText("Linz"), "seats": scalar.OfNumber(2)}}}}}}}
		got, _, err := w.run(a, false)
		w.check("import", []string{"properties: 2 created", "contacts: 1 created", "contacts: 1 completed",
			"contacts: 1 differing"}, got, err)
		ann := testnode.Must(w.Contacts.Member(t.Context(), w.team, "", "ann@example.net"))
		if ann.FirstName != "Ann" || ann.LastName != "" || !ann.Unsubscribed || ann.Properties["city"].Text != "Graz" ||
			ann.Properties["seats"].Text != "2" {
			t.Errorf("Ann is %+v", ann)
		}
	})
}

// Segments and topics that are deleted here, or get a filter, before or while the import continues do not stop it.
func TestDeletedHere(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		contact := func(address string) importfrom.Page {
			return importfrom.Page{Contacts: []importfrom.Contact{{Address: address, Segments: []string{"1", "2", "3"},
				Topics: []importfrom.Choice{{TopicID: "a", Subscription: contacts.OptOut},
					{TopicID: "b", Subscription: contacts.OptOut}}}}}
		}
		a := &account{pages: map[importfrom.Kind][]importfrom.Page{
			importfrom.Segments: {{Segments: []importfrom.Segment{{ID: "1", Name: "One"}, {ID: "2", Name: "Two"},
				{ID: "3", Name: "Three"}}}},
			importfrom.Topics: {{Topics: []importfrom.Topic{{ID: "a", Name: "A", Default: contacts.OptIn},
				{ID: "b", Name: "B", Default: contacts.OptIn}}}},
			importfrom.Contacts: {contact("a@example.net"), contact("b@example.net"), contact("c@example.net")}}}
		down := errors.New("down")
		a.before = func(kind importfrom.Kind, page int) error {
			if kind == importfrom.Contacts && page == 1 {
				return down
			}
			return nil
		}
		if _, _, err := w.run(a, false); !errors.Is(err, down) {
			t.Fatal(err)
		}
		remove := func(segment, topic string) {
			all, _, err := w.Contacts.Segments.List(ctx, w.team, page.Page{})
			if err != nil {
				t.Error(err)
			}
			for _, g := range all {
				if g.Name == segment {
					if err := w.Contacts.Segments.Delete(ctx, w.team, g.ID); err != nil {
						t.Error(err)
					}
				}
			}
			topics, _, err := w.Contacts.Topics(ctx, w.team, page.Page{})
			if err != nil {
				t.Error(err)
			}
			for _, x := range topics {
				if x.Name == topic {
					if err := w.Contacts.DeleteTopic(ctx, w.team, x.ID); err != nil {
						t.Error(err)
					}
				}
			}
		}
		remove("One", "A")
		a.before = func(kind importfrom.Kind, page int) error {
			if kind == importfrom.Contacts && page == 2 {
				remove("Two", "")
			}
			return nil
		}
		got, r, err := w.run(a, false)
		w.check("import", []string{"segments: 3 created", "topics: 2 created", "contacts: 3 created"}, got, err)
		if len(r.Notes) != 2 || !strings.Contains(r.Notes[0], "segments were deleted here") {
			t.Errorf("the notes are %q", r.Notes)
		}
		all, _, err := w.Contacts.SegmentsOf(ctx, w.team, "c@example.net", page.Page{})
		if err != nil || len(all) != 1 || all[0].Name != "Three" {
			t.Errorf("the segments are %+v, %v", all, err)
		}
		for _, s := range testnode.Must(w.Contacts.Subscriptions(ctx, w.team, "c@example.net")) {
			if s.Name != "B" || s.Subscription != contacts.OptOut {
				t.Errorf("the topics: %+v", s)
			}
		}
	})
}
