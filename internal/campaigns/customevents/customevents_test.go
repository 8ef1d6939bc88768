package customevents_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/campaigns/customevents"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/page"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

func each(t *testing.T, f func(t *testing.T, n *testnode.Node)) {
	t.Helper()
	testnode.Each(t, testnode.Options{}, f)
}

func TestDefinitions(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, n *testnode.Node) {
		ctx, team, s := t.Context(), n.Acme.TeamID, n.CustomEvents
		schema := customevents.Schema{"plan": customevents.String, "ends": customevents.Date}
		made, err := s.Create(ctx, team, "trial.started", schema)
		if err != nil || !id.Valid(made.ID) || !made.UpdatedAt.IsZero() {
			t.Fatalf("%+v, %v", made, err)
		}
		for _, name := range []string{made.ID, strings.ToUpper(made.ID), "trial.started"} {
			if got, err := s.Get(ctx, team, name); err != nil || !cmp.Equal(got, made) {
				t.Errorf("%s: %+v, %v, want %+v", name, got, err, made)
			}
			for what, err := range map[string]error{"get": errorOf(s.Get(ctx, n.Other.TeamID, name)),
				"update": errorOf(s.SetSchema(ctx, n.Other.TeamID, name, nil)),
				"delete": errorOf(s.Delete(ctx, n.Other.TeamID, name))} {
				if fault.KindOf(err) != fault.NotFound {
					t.Errorf("another team's %s of %s: %v", what, name, err)
				}
			}
		}
		_, err = s.Create(ctx, team, "trial.started", nil)
		if f, ok := err.(*fault.Error); !ok || f.Kind != fault.Invalid || f.Field != "name" {
			t.Errorf("a name twice: %v", err)
		}
		if _, err = s.Create(ctx, team, " trial.started ", nil); fault.KindOf(err) != fault.Invalid || err == nil {
			t.Errorf("a name twice, with spaces: %v", err)
		}
		if _, err := s.Create(ctx, team, "Trial.started", nil); err != nil {
			t.Errorf("another case is another name: %v", err)
		}
		if _, err := s.Create(ctx, n.Other.TeamID, "trial.started", nil); err != nil {
			t.Errorf("another team's: %v", err)
		}
		bare, err := s.SetSchema(ctx, team, "trial.started", nil)
		if err != nil || bare.Schema != nil || bare.UpdatedAt.IsZero() {
			t.Errorf("without its schema: %+v, %v", bare, err)
		}
		all, more, err := s.List(ctx, team, page.Page{Limit: 1})
		if err != nil || !more || len(all) != 1 || all[0].Name != "Trial.started" {
			t.Errorf("the newest: %+v, %v, %v", all, more, err)
		}
		all, more, err = s.List(ctx, team, page.Page{Limit: 1, After: all[0].ID})
		if err != nil || more || len(all) != 1 || !cmp.Equal(all[0], bare) {
			t.Errorf("the next: %+v, %v, %v", all, more, err)
		}
		if gone, err := s.Delete(ctx, team, "trial.started"); err != nil || gone.ID != made.ID {
			t.Errorf("%+v, %v", gone, err)
		}
		if _, err := s.Delete(ctx, team, made.ID); fault.KindOf(err) != fault.NotFound {
			t.Errorf("deleted twice: %v", err)
		}
		if _, err := s.SetSchema(ctx, team, made.ID, nil); fault.KindOf(err) != fault.NotFound {
			t.Errorf("changed once deleted: %v", err)
		}
		n.Must(s.EraseTeam(ctx, team))
		if all, _, err := s.List(ctx, team, page.Page{Limit: 10}); err != nil || len(all) != 0 {
			t.Errorf("an erased team has %+v, %v", all, err)
		}
		if all, _, err := s.List(ctx, n.Other.TeamID, page.Page{Limit: 10}); err != nil || len(all) != 1 {
			t.Errorf("another team has %+v, %v", all, err)
		}
	})
}

func errorOf[T any](_ T, err error) error { return err }

func TestTooManyDefinitions(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, n *testnode.Node) {
		ctx := t.Context()
		for i := range customevents.MaxTeam {
			_, err := n.CustomEvents.Create(ctx, n.Acme.TeamID, fmt.Sprint("event ", i), nil)
			n.Must(err)
		}
		if _, err := n.CustomEvents.Create(ctx, n.Acme.TeamID, "more", nil); fault.KindOf(err) != fault.Invalid {
			t.Errorf("one too many: %v", err)
		}
		if _, err := n.CustomEvents.Create(ctx, n.Other.TeamID, "more", nil); err != nil {
			t.Errorf("another team: %v", err)
		}
	})
}

func TestSend(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, n *testnode.Node) {
		ctx, team, s := t.Context(), n.Acme.TeamID, n.CustomEvents
		rita, _, err := n.Contacts.Upsert(ctx, team, "rita@x.example", contacts.Change{})
		n.Must(err)
		_, err = s.Create(ctx, team, "trial.started", customevents.Schema{"plan": customevents.String})
		n.Must(err)
		var happened []customevents.Occurrence
		s.OnEvent = func(_ context.Context, tx *db.Tx, o customevents.Occurrence) error {
			if !o.At.Equal(tx.Now()) {
				t.Errorf("it happened at %s, not at %s", o.At, tx.Now())
			}
			o.At = rita.CreatedAt
			happened = append(happened, o)
			return nil
		}
		for name, c := range map[string]struct {
			in   customevents.NewEvent
			want customevents.Occurrence
		}{
			"to a contact": {customevents.NewEvent{Event: "trial.started", ContactID: strings.ToUpper(rita.ID),
				Payload: []byte(`{ "plan": "pro" }`)}, customevents.Occurrence{Name: "trial.started", ContactID: rita.ID,
				Address: rita.Address, Payload: `{"plan":"pro"}`}},
			"to the address of one": {customevents.NewEvent{Event: "trial.started", Address: "Rita <RITA@x.example>"},
				customevents.Occurrence{Name: "trial.started", ContactID: rita.ID, Address: rita.Address}},
			"to an address of nobody": {customevents.NewEvent{Event: "trial.started", Address: "New@x.example"},
				customevents.Occurrence{Name: "trial.started", Address: "new@x.example"}},
			"one that is not defined": {customevents.NewEvent{Event: "other", Address: "new@x.example",
				Payload: []byte(`{"plan":1}`)}, customevents.Occurrence{Name: "other", Address: "new@x.example",
				Payload: `{"plan":1}`}},
		} {
			happened = nil
			c.want.TeamID, c.want.At = team, rita.CreatedAt
			if err := s.Send(ctx, team, c.in); err != nil || !cmp.Equal(happened, []customevents.Occurrence{c.want}) {
				t.Errorf("%s: %+v, %v; want %+v", name, happened, err, c.want)
			}
		}
		happened = nil
		for name, c := range map[string]struct {
			team  string
			in    customevents.NewEvent
			kind  fault.Kind
			field string
		}{
			"no name":        {team, customevents.NewEvent{Address: "a@x.example"}, fault.Missing, "event"},
			"a system event": {team, customevents.NewEvent{Event: "Resend:x", Address: "a@x.example"}, fault.Invalid, "event"},
			"to nobody":      {team, customevents.NewEvent{Event: "e"}, fault.Invalid, "contact_id"},
			"to two": {team, customevents.NewEvent{Event: "e", Address: "a@x.example", ContactID: rita.ID},
				fault.Invalid, "contact_id"},
			"no id":          {team, customevents.NewEvent{Event: "e", ContactID: "rita"}, fault.BadID, "contact_id"},
			"no address":     {team, customevents.NewEvent{Event: "e", Address: "rita"}, fault.Invalid, "email"},
			"no contact":     {team, customevents.NewEvent{Event: "e", ContactID: id.New()}, fault.NotFound, ""},
			"another team's": {n.Other.TeamID, customevents.NewEvent{Event: "e", ContactID: rita.ID}, fault.NotFound, ""},
			"a wrong payload": {team, customevents.NewEvent{Event: "trial.started", ContactID: rita.ID,
				Payload: []byte(`{"plan":1}`)}, fault.Invalid, "payload.plan"},
		} {
			err := s.Send(ctx, c.team, c.in)
			if f, ok := err.(*fault.Error); !ok || f.Kind != c.kind || f.Field != c.field {
				t.Errorf("%s: %v", name, err)
			}
		}
		if happened != nil {
			t.Errorf("what was refused happened: %+v", happened)
		}
		// A team's definition of an event does not apply to events sent by other teams.
		if err := s.Send(ctx, n.Other.TeamID, customevents.NewEvent{Event: "trial.started", Address: "a@x.example",
			Payload: []byte(`{"plan":1}`)}); err != nil {
			t.Error(err)
		}
	})
}

// Send calls OnEvent and the caller's Also function in one transaction.
func TestSendIsWhole(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, n *testnode.Node) {
		ctx, team, s := t.Context(), n.Acme.TeamID, n.CustomEvents
		write := func(address string) func(context.Context, *db.Tx) error {
			return func(ctx context.Context, tx *db.Tx) error {
				_, _, err := n.Contacts.UpsertIn(ctx, tx, team, address, contacts.Change{})
				return err
			}
		}
		s.OnEvent = func(ctx context.Context, tx *db.Tx, o customevents.Occurrence) error {
			return write(o.Address)(ctx, tx)
		}
		broken := errors.New("broken")
		in := customevents.NewEvent{Event: "e", Address: "a@x.example",
			Also: func(context.Context, *db.Tx) error { return broken }}
		if err := s.Send(ctx, team, in); !errors.Is(err, broken) {
			t.Fatal(err)
		}
		if _, err := n.Contacts.Get(ctx, team, "a@x.example"); fault.KindOf(err) != fault.NotFound {
			t.Errorf("of an event that failed something is left: %v", err)
		}
		in.Also = write("b@x.example")
		n.Must(s.Send(ctx, team, in))
		for _, address := range []string{"a@x.example", "b@x.example"} {
			if _, err := n.Contacts.Get(ctx, team, address); err != nil {
				t.Errorf("%s: %v", address, err)
			}
		}
	})
}
