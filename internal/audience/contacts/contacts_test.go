package contacts_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/erasure"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/keyring"
	"github.com/postrider/postrider/internal/platform/page"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// world is a test node that records events about contacts.
type world struct {
	*testnode.Node
	t    *testing.T
	team string
	seen testnode.Seen
}

func each(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		w := &world{Node: n, t: t, team: n.Acme.TeamID}
		n.Recorder.Listen(&w.seen)
		f(t, w)
	})
}

func (w *world) topic(n contacts.NewTopic) contacts.Topic {
	w.t.Helper()
	topic, err := w.Contacts.CreateTopic(w.t.Context(), w.team, n)
	if err != nil {
		w.t.Fatal(err)
	}
	return topic
}

func (w *world) upsert(address string, c contacts.Change) contacts.Contact {
	w.t.Helper()
	at, _, err := w.Contacts.Upsert(w.t.Context(), w.team, address, c)
	if err != nil {
		w.t.Fatal(err)
	}
	return at
}

// happened returns the type and the contact's address for each event that was recorded since the last call.
func (w *world) happened() (all []string) {
	for _, e := range w.seen.Take() {
		all = append(all, string(e.Type)+" "+e.Data.(*events.Contact).Email)
	}
	return all
}

func TestUpsert(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		made, created, err := w.Contacts.Upsert(ctx, w.team, "Rita <Rita@Example.org>",
			contacts.Change{FirstName: new("Rita"), LastName: new("Ray")})
		if err != nil || !created || made.Address != "rita@example.org" || !id.Valid(made.ID) {
			t.Fatalf("%+v, %v, %v", made, created, err)
		}
		seen := w.seen.Take()
		want := &events.Contact{ID: made.ID, SegmentIDs: []string{}, Email: "rita@example.org", FirstName: "Rita",
			LastName: "Ray", CreatedAt: made.CreatedAt, UpdatedAt: made.CreatedAt}
		if len(seen) != 1 || seen[0].Type != events.ContactCreated || !cmp.Equal(seen[0].Data, want) {
			t.Errorf("%+v", seen)
		}
		again, created, err := w.Contacts.Upsert(ctx, w.team, "RITA@example.ORG",
			contacts.Change{LastName: new(""), Unsubscribed: new(true)})
		if err != nil || created || again.ID != made.ID || again.FirstName != "Rita" || again.LastName != "" ||
			!again.Unsubscribed || !again.UpdatedAt.After(made.UpdatedAt) {
			t.Errorf("%+v, %v, %v", again, created, err)
		}
		seen = w.seen.Take()
		want = &events.Contact{ID: made.ID, SegmentIDs: []string{}, Email: "rita@example.org", FirstName: "Rita",
			Unsubscribed: true, Switched: true, CreatedAt: made.CreatedAt, UpdatedAt: again.UpdatedAt}
		if len(seen) != 1 || seen[0].Type != events.ContactUpdated || !cmp.Equal(seen[0].Data, want) {
			t.Errorf("%+v", seen)
		}
		w.upsert("rita@example.org", contacts.Change{FirstName: new("Rita"), Unsubscribed: new(true)})
		if all := w.happened(); len(all) != 0 {
			t.Errorf("what changes nothing recorded %v", all)
		}
		for _, name := range []string{made.ID, strings.ToUpper(made.ID), "rita@example.org", "Rita@Example.org"} {
			got, err := w.Contacts.Get(ctx, w.team, name)
			if err != nil || !cmp.Equal(got, again, cmp.AllowUnexported(contacts.Contact{})) {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
			if _, err := w.Contacts.Get(ctx, w.Other.TeamID, name); fault.KindOf(err) != fault.NotFound {
				t.Errorf("another team gets %s: %v", name, err)
			}
		}
	})
}

func TestUpsertRefuses(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		topic := w.topic(contacts.NewTopic{Name: "News", Default: contacts.OptIn})
		in := func(topicID string) contacts.Choice {
			return contacts.Choice{TopicID: topicID, Subscription: contacts.OptIn}
		}
		for name, c := range map[string]struct {
			address string
			change  contacts.Change
			field   string
		}{
			"no address":    {"", contacts.Change{}, "email"},
			"a bad address": {"rita", contacts.Change{}, "email"},
			"a long name":   {"a@b.example", contacts.Change{FirstName: new(strings.Repeat("é", 256))}, "first_name"},
			"a line break":  {"a@b.example", contacts.Change{LastName: new("a\nb")}, "last_name"},
			"no UTF-8":      {"a@b.example", contacts.Change{LastName: new("\xff")}, "last_name"},
			"no topic":      {"a@b.example", contacts.Change{Topics: []contacts.Choice{in(id.New())}}, "topics"},
			"no id":         {"a@b.example", contacts.Change{Topics: []contacts.Choice{in("a\x00")}}, "topics"},
			"a topic twice": {"a@b.example", contacts.Change{Topics: []contacts.Choice{in(topic.ID), in(topic.ID)}}, "topics"},
			"no such choice": {"a@b.example", contacts.Change{Topics: []contacts.Choice{{TopicID: topic.ID,
				Subscription: "maybe"}}}, "topics[0].subscription"},
		} {
			_, _, err := w.Contacts.Upsert(t.Context(), w.team, c.address, c.change)
			if f, ok := err.(*fault.Error); !ok || f.Field != c.field {
				t.Errorf("%s: %v", name, err)
			}
		}
		_, _, err := w.Contacts.Upsert(t.Context(), w.Other.TeamID, "a@b.example",
			contacts.Change{Topics: []contacts.Choice{in(topic.ID)}})
		if fault.KindOf(err) != fault.Invalid {
			t.Errorf("another team's topic: %v", err)
		}
		if all := w.happened(); len(all) != 0 {
			t.Errorf("what was refused recorded %v", all)
		}
	})
}

func TestTopics(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		for name, c := range map[string]struct {
			n     contacts.NewTopic
			field string
		}{
			"no name":      {contacts.NewTopic{Default: contacts.OptIn}, "name"},
			"a blank name": {contacts.NewTopic{Name: " ", Default: contacts.OptIn}, "name"},
			"a long name":  {contacts.NewTopic{Name: strings.Repeat("é", 51), Default: contacts.OptIn}, "name"},
			"a long text": {contacts.NewTopic{Name: "n", Description: strings.Repeat("é", 201), Default: "opt_in"},
				"description"},
			"no default":       {contacts.NewTopic{Name: "n"}, "default_subscription"},
			"no such default":  {contacts.NewTopic{Name: "n", Default: "in"}, "default_subscription"},
			"no such audience": {contacts.NewTopic{Name: "n", Default: contacts.OptIn, Visibility: "all"}, "visibility"},
		} {
			_, err := w.Contacts.CreateTopic(ctx, w.team, c.n)
			if f, ok := err.(*fault.Error); !ok || f.Field != c.field {
				t.Errorf("%s: %v", name, err)
			}
		}
		first := w.topic(contacts.NewTopic{Name: strings.Repeat("é", 50), Description: "About.", Default: contacts.OptOut})
		second := w.topic(contacts.NewTopic{Name: "Second", Default: contacts.OptIn, Visibility: contacts.Public})
		if first.Visibility != contacts.Private {
			t.Errorf("%+v", first)
		}
		all, more, err := w.Contacts.Topics(ctx, w.team, page.Page{})
		if diff := cmp.Diff([]contacts.Topic{second, first}, all); diff != "" || more || err != nil {
			t.Errorf("%v %v %s", more, err, diff)
		}
		public := contacts.Public
		first.Name, first.Visibility = "Renamed", public
		got, err := w.Contacts.UpdateTopic(ctx, w.team, strings.ToUpper(first.ID), contacts.TopicChange{Name: new("Renamed"),
			Visibility: &public})
		if err != nil || got != first {
			t.Errorf("%+v, %v", got, err)
		}
		if _, err := w.Contacts.UpdateTopic(ctx, w.team, first.ID, contacts.TopicChange{Name: new("")}); err == nil {
			t.Error("a name is taken away")
		}
		for what, err := range map[string]error{
			"get":    errorOf(w.Contacts.Topic(ctx, w.Other.TeamID, first.ID)),
			"update": errorOf(w.Contacts.UpdateTopic(ctx, w.Other.TeamID, first.ID, contacts.TopicChange{})),
			"delete": w.Contacts.DeleteTopic(ctx, w.Other.TeamID, first.ID),
		} {
			if fault.KindOf(err) != fault.NotFound {
				t.Errorf("another team's %s: %v", what, err)
			}
		}
		if got, err := w.Contacts.Topic(ctx, w.team, first.ID); err != nil || got != first {
			t.Errorf("%+v, %v", got, err)
		}
		if err := w.Contacts.DeleteTopic(ctx, w.team, first.ID); err != nil {
			t.Fatal(err)
		}
		if err := w.Contacts.DeleteTopic(ctx, w.team, first.ID); fault.KindOf(err) != fault.NotFound {
			t.Errorf("deleted twice: %v", err)
		}
		for range contacts.MaxTopics - 1 {
			w.topic(contacts.NewTopic{Name: "Same", Default: contacts.OptIn})
		}
		_, err = w.Contacts.CreateTopic(ctx, w.team, contacts.NewTopic{Name: "More", Default: contacts.OptIn})
		if fault.KindOf(err) != fault.Invalid {
			t.Errorf("one topic too many: %v", err)
		}
		_, err = w.Contacts.CreateTopic(ctx, w.Other.TeamID, contacts.NewTopic{Name: "n", Default: contacts.OptIn})
		if err != nil {
			t.Errorf("another team is refused: %v", err)
		}
	})
}

func errorOf[T any](_ T, err error) error { return err }

// The test checks which contacts may be mailed about a topic and, for each of the others, the reason for the refusal.
func TestRefused(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		byDefault := map[contacts.Subscription]contacts.Topic{}
		other := w.topic(contacts.NewTopic{Name: "other", Default: contacts.OptIn})
		for _, s := range []contacts.Subscription{contacts.OptIn, contacts.OptOut} {
			byDefault[s] = w.topic(contacts.NewTopic{Name: string(s), Default: s})
		}
		choose := func(s contacts.Subscription, more ...contacts.Choice) contacts.Change {
			for _, topic := range byDefault {
				more = append(more, contacts.Choice{TopicID: topic.ID, Subscription: s})
			}
			return contacts.Change{Topics: more}
		}
		w.upsert("none@x.example", contacts.Change{})
		w.upsert("in@x.example", choose(contacts.OptIn))
		w.upsert("out@x.example", choose(contacts.OptOut))
		w.upsert("other@x.example", contacts.Change{Topics: []contacts.Choice{{TopicID: other.ID, Subscription: "opt_out"}}})
		left := choose(contacts.OptIn)
		left.Unsubscribed = new(true)
		w.upsert("left@x.example", left)
		if _, _, err := w.Contacts.Upsert(ctx, w.Other.TeamID, "stranger@x.example",
			contacts.Change{Unsubscribed: new(true)}); err != nil {
			t.Fatal(err)
		}
		all := []string{"stranger@x.example", "none@x.example", "in@x.example", "out@x.example", "other@x.example",
			"left@x.example"}
		for s, want := range map[contacts.Subscription]map[string]contacts.Refusal{
			contacts.OptIn: {"out@x.example": contacts.OptedOut, "left@x.example": contacts.Unsubscribed},
			contacts.OptOut: {"out@x.example": contacts.OptedOut, "left@x.example": contacts.Unsubscribed,
				"none@x.example": contacts.NotOptedIn, "other@x.example": contacts.NotOptedIn,
				"stranger@x.example": contacts.NotOptedIn},
		} {
			topicID := strings.ToUpper(byDefault[s].ID)
			got, err := w.Contacts.Refused(ctx, w.DB.Reader, w.team, topicID, all)
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("default %s: %v %s", s, err, diff)
			}
			for _, address := range all { // on SQLite, a single address uses a different statement
				got, err := w.Contacts.Refused(ctx, w.DB.Reader, w.team, topicID, []string{address})
				if err != nil || got[address] != want[address] {
					t.Errorf("default %s: %s alone: %v, %v", s, address, got, err)
				}
			}
			var many []string
			for i := range 1200 {
				many = append(many, fmt.Sprintf("%d@y.example", i))
			}
			got, err = w.Contacts.Refused(ctx, w.DB.Reader, w.team, topicID, append(many, "out@x.example"))
			if n := map[contacts.Subscription]int{contacts.OptIn: 1, contacts.OptOut: 1201}[s]; len(got) != n || err != nil {
				t.Errorf("default %s: %d of many are refused, %v", s, len(got), err)
			}
		}
		gone := w.topic(contacts.NewTopic{Name: "gone", Default: contacts.OptIn})
		if err := w.Contacts.DeleteTopic(ctx, w.team, gone.ID); err != nil {
			t.Fatal(err)
		}
		for _, topicID := range []string{id.New(), "x", "\x00", "", gone.ID} {
			_, err := w.Contacts.Refused(ctx, w.DB.Reader, w.team, topicID, nil)
			if f, ok := err.(*fault.Error); !ok || f.Kind != fault.Invalid || f.Field != "topic_id" {
				t.Errorf("topic %q: %v", topicID, err)
			}
		}
		_, err := w.Contacts.Refused(ctx, w.DB.Reader, w.Other.TeamID, other.ID, all)
		if fault.KindOf(err) != fault.Invalid {
			t.Errorf("another team's topic: %v", err)
		}
	})
}

// ReadToken returns the link that a token was created for, and rejects tokens that were forged or changed.
func TestTokens(t *testing.T) {
	t.Parallel()
	n := testnode.Bare(t, dbtest.SQLite(t), testnode.Options{})
	for _, l := range []contacts.Link{
		{TeamID: id.New(), EmailID: id.New(), TopicID: id.New(), Address: "rita@example.org"},
		{TeamID: id.New(), EmailID: id.New(), Address: "rita@example.org"},
		{TeamID: id.New(), Address: "ünï@xn--bcher-kva.example"},
	} {
		token := n.Contacts.Token(l)
		if got, err := n.Contacts.ReadToken(token); err != nil || got != l {
			t.Errorf("%+v became %+v, %v", l, got, err)
		}
		raw, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil {
			t.Fatal(err)
		}
		refuse := func(token string) {
			t.Helper()
			if got, err := n.Contacts.ReadToken(token); fault.KindOf(err) != fault.NotFound {
				t.Errorf("an altered token is %+v, %v", got, err)
			}
		}
		for bit := range 8 * len(raw) {
			raw[bit/8] ^= 1 << (bit % 8)
			refuse(base64.RawURLEncoding.EncodeToString(raw))
			raw[bit/8] ^= 1 << (bit % 8)
		}
		for _, bad := range []string{"", token[1:], token[:len(token)-1], token + "A", token + "\n", "%"} {
			refuse(bad)
		}
	}
}

// Each link has exactly one valid token: every token that ReadToken accepts equals the token that Token creates for the
// link.
func FuzzReadToken(f *testing.F) {
	keys, err := keyring.New(make([]byte, keyring.MasterSize))
	if err != nil {
		f.Fatal(err)
	}
	s := contacts.NewTokens(keys)
	f.Add(s.Token(contacts.Link{TeamID: id.New(), EmailID: id.New(), TopicID: id.New(), Address: "rita@example.org"}))
	f.Add(s.Token(contacts.Link{TeamID: id.New(), Address: "r@example.org"}))
	f.Add(keys.Sign("share", time.Time{}, "a", "b", "c", "d"))
	f.Fuzz(func(t *testing.T, token string) {
		l, err := s.ReadToken(token)
		switch {
		case err != nil && fault.KindOf(err) != fault.NotFound:
			t.Errorf("%q: %v", token, err)
		case err == nil && s.Token(l) != token:
			t.Errorf("%q is read as %+v", token, l)
		}
	})
}

// Many concurrent one-click unsubscribe requests for an address without a contact create exactly one contact, and all
// opt-outs are stored.
func TestUnsubscribingAtOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		var topics []contacts.Topic
		for i := range 4 {
			topics = append(topics, w.topic(contacts.NewTopic{Name: fmt.Sprint(i), Default: contacts.OptIn}))
		}
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() {
				l := contacts.Link{TeamID: w.team, EmailID: id.New(), TopicID: topics[i%4].ID, Address: "new@x.example"}
				if _, _, err := w.Contacts.Unsubscribe(ctx, l); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		at, err := w.Contacts.Get(ctx, w.team, "new@x.example")
		if err != nil || at.Unsubscribed {
			t.Fatalf("%+v, %v", at, err)
		}
		all, err := w.Contacts.Subscriptions(ctx, w.team, at.ID)
		for _, s := range all {
			if s.Subscription != contacts.OptOut {
				t.Errorf("it is still in %s", s.Name)
			}
		}
		if len(all) != 4 || err != nil {
			t.Errorf("%d topics, %v", len(all), err)
		}
		created, updated := 0, 0
		for _, what := range w.happened() {
			switch what {
			case "contact.created new@x.example":
				created++
			case "contact.updated new@x.example":
				updated++
			}
		}
		if created != 1 || updated != 3 {
			t.Errorf("%d events of a creation and %d of a change", created, updated)
		}
	})
}

func TestSubscribe(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		news := w.topic(contacts.NewTopic{Name: "News", Default: contacts.OptIn})
		beta := w.topic(contacts.NewTopic{Name: "Beta", Default: contacts.OptOut})
		at := w.upsert("a@x.example", contacts.Change{})
		w.happened()
		states := func() string {
			t.Helper()
			all, err := w.Contacts.Subscriptions(ctx, w.team, at.ID)
			if err != nil {
				t.Fatal(err)
			}
			text := ""
			for _, s := range all {
				text += s.Name + ":" + string(s.Subscription) + " "
			}
			return text
		}
		if got := states(); got != "News:opt_in Beta:opt_out " {
			t.Error(got)
		}
		for range 2 {
			if err := w.Contacts.Subscribe(ctx, w.team, at.ID,
				[]contacts.Choice{{TopicID: strings.ToUpper(beta.ID), Subscription: contacts.OptIn}}); err != nil {
				t.Fatal(err)
			}
		}
		if got := states(); got != "News:opt_in Beta:opt_in " {
			t.Error(got)
		}
		if all := w.happened(); len(all) != 1 || all[0] != "contact.updated a@x.example" {
			t.Errorf("%v", all)
		}
		choice := []contacts.Choice{{TopicID: news.ID, Subscription: contacts.OptOut}}
		for _, teamID := range []string{w.team, w.Other.TeamID} {
			contactID := at.ID
			if teamID == w.team {
				contactID = id.New()
			}
			if err := w.Contacts.Subscribe(ctx, teamID, contactID, choice); err == nil {
				t.Error("a contact that is not there is subscribed")
			}
			if _, err := w.Contacts.Subscriptions(ctx, teamID, contactID); fault.KindOf(err) != fault.NotFound {
				t.Errorf("the subscriptions of one that is not there: %v", err)
			}
		}
	})
}

// Sweep deletes the rows of a deleted topic and no others.
func TestSweep(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		kept := w.topic(contacts.NewTopic{Name: "Kept", Default: contacts.OptIn})
		gone := w.topic(contacts.NewTopic{Name: "Gone", Default: contacts.OptIn})
		for i := range 3 {
			w.upsert(fmt.Sprintf("%d@x.example", i), contacts.Change{Topics: []contacts.Choice{
				{TopicID: kept.ID, Subscription: contacts.OptOut}, {TopicID: gone.ID, Subscription: contacts.OptOut}}})
		}
		if err := w.Contacts.DeleteTopic(ctx, w.team, gone.ID); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := w.Contacts.Sweep(ctx); err != nil {
				t.Fatal(err)
			}
		}
		var chosen, topics int
		err := w.DB.QueryRow(ctx, `SELECT (SELECT COUNT(*) FROM contact_topics), (SELECT COUNT(*) FROM topics)`).
			Scan(&chosen, &topics)
		if chosen != 3 || topics != 1 || err != nil {
			t.Errorf("%d choices and %d topics are left, %v", chosen, topics, err)
		}
	})
}

// EraseAddress deletes everything about an address except its opt-outs. If the refusals parameter is true, EraseAddress
// also deletes the opt-outs.
func TestEraseAddress(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		news := w.topic(contacts.NewTopic{Name: "News", Default: contacts.OptIn})
		beta := w.topic(contacts.NewTopic{Name: "Beta", Default: contacts.OptOut})
		named := contacts.Change{FirstName: new("First"), LastName: new("Last"), Topics: []contacts.Choice{
			{TopicID: beta.ID, Subscription: contacts.OptIn}}}
		w.upsert("in@x.example", named)
		refuses := named
		refuses.Topics = append([]contacts.Choice{{TopicID: news.ID, Subscription: contacts.OptOut}}, named.Topics...)
		w.upsert("out@x.example", refuses)
		unsubscribed := named
		unsubscribed.Unsubscribed = new(true)
		w.upsert("left@x.example", unsubscribed)
		w.upsert("bystander@x.example", named)
		if _, _, err := w.Contacts.Upsert(ctx, w.Other.TeamID, "in@x.example", contacts.Change{}); err != nil {
			t.Fatal(err)
		}
		w.happened()
		erase := func(address string, refusals, dry bool) string {
			t.Helper()
			a, err := erasure.Parse(address)
			if err != nil {
				t.Fatal(err)
			}
			found, err := contacts.EraseAddress(ctx, w.DB, a, erasure.Scope{Teams: []string{w.team}, DryRun: dry}, refusals)
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprint(found)
		}
		rows := func() (all [3]int) {
			t.Helper()
			err := w.DB.QueryRow(ctx, `SELECT (SELECT COUNT(*) FROM contacts), (SELECT COUNT(*) FROM contact_topics),
				(SELECT COUNT(*) FROM contacts WHERE first_name <> '' OR last_name <> '')`).Scan(&all[0], &all[1], &all[2])
			if err != nil {
				t.Fatal(err)
			}
			return all
		}
		for _, step := range []struct {
			address       string
			refusals, dry bool
			says          string
			left          [3]int
		}{
			{"nobody@x.example", false, false, "[]", [3]int{5, 5, 4}},
			{"in@x.example", false, true, "[{contacts deleted 1 }]", [3]int{5, 5, 4}},
			{"IN@x.example", false, false, "[{contacts deleted 1 }]", [3]int{4, 4, 3}},
			{"out@x.example", false, false, "LEFT without their names", [3]int{4, 3, 2}},
			{"left@x.example", false, false, "LEFT without their names", [3]int{4, 2, 1}},
			{"out@x.example", true, false, "[{contacts deleted 1 }]", [3]int{3, 1, 1}},
			{"left@x.example", true, false, "[{contacts deleted 1 }]", [3]int{2, 1, 1}},
		} {
			if says := erase(step.address, step.refusals, step.dry); !strings.Contains(says, step.says) {
				t.Errorf("%+v: it says %s", step, says)
			}
			if left := rows(); left != step.left {
				t.Errorf("%+v: left are %v", step, left)
			}
			if step.address == "left@x.example" && !step.refusals {
				refused, err := w.Contacts.Refused(ctx, w.DB.Reader, w.team, news.ID,
					[]string{"out@x.example", "left@x.example"})
				if len(refused) != 2 || err != nil {
					t.Errorf("what was erased is forgotten: %v, %v", refused, err)
				}
			}
		}
		if all := w.happened(); len(all) != 0 {
			t.Errorf("erasing recorded %v", all)
		}
	})
}

// Refused runs a single query that uses only indexes, both for one address and for several.
func TestRefusedIsOneQueryByIndexes(t *testing.T) {
	t.Parallel()
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		n := testnode.New(t, d, testnode.Options{})
		ctx, team := t.Context(), n.Acme.TeamID
		topic, err := n.Contacts.CreateTopic(ctx, team, contacts.NewTopic{Name: "News", Default: contacts.OptIn})
		if err != nil {
			t.Fatal(err)
		}
		for _, addresses := range [][]string{{"a@x.example"}, {"a@x.example", "b@x.example"}} {
			trace.Take()
			if _, err := n.Contacts.Refused(ctx, d.Reader, team, topic.ID, addresses); err != nil {
				t.Fatal(err)
			}
			asked := trace.Take()
			if len(asked) != 1 {
				t.Fatalf("%d queries: %v", len(asked), asked)
			}
			plan := trace.Plan(t, asked[0])
			if !strings.Contains(plan, "contacts_address") || strings.Contains(plan, "SCAN t") ||
				strings.Contains(plan, "SCAN c") || strings.Contains(plan, "SCAN s") || strings.Contains(plan, "Seq Scan") {
				t.Errorf("%v: %s", addresses, plan)
			}
		}
	})
}
