package emails_test

import (
	"context"
	"slices"
	"testing"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/emails"
)

// The first event of an email has no row, unless the email is scheduled. The timeline shows the event with the email's
// id and time, and its id is a cursor like that of any other event. Listeners get the event with the same id.
func TestFirstEvent(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		ctx, team := t.Context(), f.Acme.TeamID
		var heard []events.Event
		f.Recorder.Listen(listen(func(all []events.Event) { heard = append(heard, all...) }))
		types := func(teamID, emailID string, p page.Page) (types []string, more bool) {
			t.Helper()
			all, more, err := f.Emails.Timeline(ctx, teamID, emailID, p)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range all {
				types = append(types, e.Type)
			}
			return types, more
		}
		sent := f.Send(hello("a@one.example", "b@one.example"))
		results := f.enqueue(t, f.mailing(t, f.add(t, news())), emails.MailingRecipient{Address: "c@one.example"})
		shared := results[0].ID
		if n := f.Count(`SELECT COUNT(*) FROM email_events`); n != 0 {
			t.Errorf("two emails have %d rows of events", n)
		}
		for i, emailID := range []string{sent, shared} {
			all, more, err := f.Emails.Timeline(ctx, team, emailID, page.Page{Limit: 1})
			e := f.Email(emailID)
			if err != nil || more || len(all) != 1 || all[0].ID != emailID || !all[0].At.Equal(e.CreatedAt) ||
				all[0].Type != "queued" || all[0].Recipient != "" || all[0].Data != "" {
				t.Errorf("the timeline is %+v, more %v, %v", all, more, err)
			}
			if h := heard[i]; h.Type != events.EmailQueued || h.ID != emailID || h.EmailID != emailID || h.At.IsZero() {
				t.Errorf("listeners got %+v", h)
			}
		}
		if all, _ := types(f.Other.TeamID, sent, page.Page{}); len(all) != 0 {
			t.Errorf("another team sees %q", all)
		}
		f.end(t, sent, events.EmailDelivered, "a@one.example")
		f.end(t, sent, events.EmailBounced, "b@one.example")
		last := heard[len(heard)-1].ID
		for _, c := range []struct {
			page page.Page
			want []string
			more bool
		}{
			{page.Page{}, []string{"queued", "delivered", "bounced"}, false},
			{page.Page{Limit: 2}, []string{"queued", "delivered"}, true},
			{page.Page{Limit: 3, After: sent}, []string{"delivered", "bounced"}, false},
			{page.Page{Limit: 1, After: sent}, []string{"delivered"}, true},
			{page.Page{Limit: 2, Before: last}, []string{"queued", "delivered"}, false},
			{page.Page{Limit: 1, Before: last}, []string{"delivered"}, true},
			{page.Page{Before: sent}, nil, false},
		} {
			if got, more := types(team, sent, c.page); !slices.Equal(got, c.want) || more != c.more {
				t.Errorf("%+v: %q, more %v", c.page, got, more)
			}
		}
		timed := f.schedule(t)
		if got, _ := types(team, timed, page.Page{}); !slices.Equal(got, []string{"scheduled"}) {
			t.Errorf("a scheduled email has the timeline %q", got)
		}
		f.makeDue(t, timed)
		all, _, err := f.Emails.Timeline(ctx, team, timed, page.Page{})
		if err != nil || len(all) != 2 || all[1].Type != "queued" || all[1].ID == timed || !id.Valid(all[1].ID) {
			t.Errorf("a scheduled email that is due has the timeline %+v, %v", all, err)
		}
		f.Counted(later())
		f.all(t, f.Emails.RemoveTimelines, func() {})
		for emailID, want := range map[string][]string{sent: nil, shared: {"queued"}, timed: {"scheduled", "queued"}} {
			if got, _ := types(team, emailID, page.Page{}); !slices.Equal(got, want) {
				t.Errorf("after old timelines were deleted, one is %q, want %q", got, want)
			}
		}
	})
}

// listen is a listener that calls a function.
type listen func(all []events.Event)

func (l listen) Recorded(_ context.Context, _ *db.Tx, all []events.Event) error {
	l(slices.Clone(all))
	return nil
}
