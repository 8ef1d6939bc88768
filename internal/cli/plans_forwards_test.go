package cli

import (
	"context"
	"log/slog"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/outbound/forwards"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/erasure"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/emails"
)

// forwards creates forwarding rules, has them match mail, and tells them how it fared.
func (d *driver) forwards() {
	d.t.Helper()
	ctx := d.t.Context()
	must := func(err error) {
		d.t.Helper()
		if err != nil {
			d.t.Error(err)
		}
	}
	domainID := d.do("POST", "/domains", `{"name":"forwards.example","capabilities":{"receiving":"enabled"}}`)
	nothing := func(context.Context, *db.Tx, string, string, string) error { return nil }
	s, err := forwards.New(forwards.Config{}, forwards.Deps{DB: d.DB, Queue: d.Queue, Keys: d.Keys, Domains: d.Domains,
		Emails: d.Emails, Teams: d.Teams, Log: slog.New(slog.DiscardHandler),
		LookupTXT: func(context.Context, string) ([]string, error) { return nil, nil },
		Received:  func(context.Context, string, string) (forwards.Message, error) { return forwards.Message{}, nil },
		Payload:   func(context.Context, string, string) (string, error) { return "", nil },
		CheckURL:  func(_, url string) (string, error) { return url, nil },
		Call:      func(context.Context, string, string, string, []byte, [][]byte) (int, error) { return 200, nil },
		Notify:    nothing, Mail: nothing})
	must(err)
	r, err := s.Create(ctx, d.team, domainID, forwards.NewRule{Local: "*", Address: "bob@target.example"})
	must(err)
	posted, err := s.Create(ctx, d.team, domainID, forwards.NewRule{Local: "*", URL: "https://target.example"})
	must(err)
	_, err = s.Rotate(ctx, d.team, domainID, posted.ID)
	must(err)
	_, _, err = s.List(ctx, d.team, domainID, page.Page{Limit: 1})
	must(err)
	_, err = s.Ask(ctx, d.team, domainID, r.ID)
	must(err)
	local := "sales"
	_, err = s.Update(ctx, d.team, domainID, r.ID, forwards.Change{Local: &local})
	must(err)
	must(d.DB.Update(ctx, func(tx *db.Tx) error {
		return s.Arrived(ctx, tx, []emails.Arrival{{TeamID: d.team, EmailID: id.New(),
			To: []emails.ArrivalAddress{{Address: "sales@forwards.example", DomainID: domainID}}}})
	}))
	must(d.DB.Update(ctx, func(tx *db.Tx) error {
		var all []events.Event
		for _, e := range []events.Event{{Type: events.EmailBounced, Data: &events.Bounce{Type: "Permanent"}},
			{Type: events.EmailDelivered}, {Type: events.EmailSuppressed}} {
			e.TeamID, e.ForwardRule = d.team, r.ID
			all = append(all, e)
		}
		return s.Recorded(ctx, tx, all)
	}))
	must(s.Sweep(ctx))
	a, err := erasure.Parse("bob@target.example")
	must(err)
	_, err = forwards.EraseAddress(ctx, d.DB, a, erasure.Scope{Teams: []string{d.team}})
	must(err)
	must(s.EraseTeam(ctx, d.team))
}
