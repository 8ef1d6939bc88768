package broadcasts_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/segments"
	"github.com/postrider/postrider/internal/campaigns/broadcasts"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
)

// Audience and Send apply the same rules: contacts that Audience counts as unmailable, suppressed or unsubscribed are
// left out by Send.
func TestAudienceIsWhatTheRunDoes(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		s.join("a@reader.example", "b@reader.example", "c@example.com", "d@test.com", "e@test.com", "f@reader.example")
		leave := true
		for _, address := range []string{"b@reader.example", "d@test.com"} {
			_, _, err := s.Contacts.Upsert(t.Context(), s.Acme.TeamID, address, contacts.Change{Unsubscribed: &leave})
			s.Must(err)
		}
		_, err := s.Suppressions.Add(t.Context(), s.Acme.TeamID, []string{"e@test.com", "f@reader.example"})
		s.Must(err)
		id := s.draft(s.news())
		a, err := s.b.Audience(t.Context(), s.Acme.TeamID, id)
		s.Must(err)
		want := map[string]int64{"email_refused": 3, "suppressed": 1, "contact_unsubscribed": 1}
		if a.Contacts != 6 || a.Mailed != 1 || !maps.Equal(a.LeftOut, want) {
			t.Errorf("the audience is %+v", a)
		}
		s.send(id)
		s.Run(s.b.Kinds()...)
		s.walked(id, 1)
		r, err := s.b.Results(t.Context(), s.Acme.TeamID, id)
		s.Must(err)
		if !maps.Equal(r.LeftOut, want) {
			t.Errorf("the run left out %v, want %v", r.LeftOut, want)
		}
	})
}

// Send refuses a draft whose segment or topic was deleted, and the error names the field. A draft whose segment or
// topic was deleted can be sent after another segment or topic has been chosen. Get does not return a deleted topic.
func TestDraftOfWhatWasDeleted(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		ctx, acme := t.Context(), s.Acme.TeamID
		s.readers(1)
		topic, err := s.Contacts.CreateTopic(ctx, acme, contacts.NewTopic{Name: "Offers", Default: contacts.OptIn})
		s.Must(err)
		draft := s.news()
		draft.TopicID = topic.ID
		ofTopic := s.draft(draft)
		draft.TopicID, draft.SegmentID = "", s.newSegment(acme)
		ofSegment := s.draft(draft)
		s.Must(s.Contacts.DeleteTopic(ctx, acme, topic.ID))
		s.Must(s.Contacts.Segments.Delete(ctx, acme, draft.SegmentID))
		none, other := "", s.segment
		for _, c := range []struct {
			id, field string
			mend      broadcasts.Change
		}{{ofTopic, "topic_id", broadcasts.Change{TopicID: &none}},
			{ofSegment, "segment_id", broadcasts.Change{SegmentID: &other}}} {
			refused := func(what string, err error) {
				t.Helper()
				if f, ok := errors.AsType[*fault.Error](err); !ok || f.Kind != fault.Invalid || f.Field != c.field {
					t.Errorf("%s without its %s: %v", what, c.field, err)
				}
			}
			_, err := s.b.Update(ctx, s.Acme, c.id, broadcasts.Change{Name: new("Renamed")})
			s.Must(err)
			_, err = s.b.Send(ctx, s.Acme, c.id, "")
			refused("sent", err)
			_, err = s.b.Send(ctx, s.Acme, c.id, "in 1 hour")
			refused("scheduled", err)
			_, err = s.b.Audience(ctx, acme, c.id)
			refused("counted", err)
			all, _, err := s.b.List(ctx, acme, pageOf(10))
			s.Must(err)
			for _, b := range append(all, s.broadcast(c.id)) {
				if b.ID == c.id && (b.TopicDeleted != (c.field == "topic_id") || b.Name != "Renamed") {
					t.Errorf("%s: it is %+v", c.field, b)
				}
			}
			_, err = s.b.Update(ctx, s.Acme, c.id, c.mend)
			s.Must(err)
			s.send(c.id)
		}
	})
}

// Send does not wait for a slow segment filter. The broadcast is later sent to the contacts that the filter finds, even
// if it finds none.
func TestSendDoesNotWaitForFilters(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		ctx, acme := t.Context(), s.Acme.TeamID
		s.readers(1)
		segment, err := s.Contacts.Segments.Create(ctx, acme, segments.Definition{Name: "nobody",
			Filter: `{"type":"rule","field":"contact.email","operator":"contains","value":"nobody"}`})
		s.Must(err)
		news := s.news()
		news.SegmentID = segment.ID
		draft := s.draft(news)
		if _, err := s.b.Send(ctx, s.Acme, draft, ""); fault.KindOf(err) != fault.Invalid {
			t.Errorf("an empty audience: %v", err)
		}
		taken, end := context.WithCancel(ctx)
		var reads sync.WaitGroup
		began := make(chan bool)
		for free := true; free; {
			reads.Go(func() {
				err := s.DB.ReadLong(taken, db.Long{Owner: id.New(), Wait: time.Millisecond}, func(ctx context.Context,
					_ db.Reader) error {
					began <- true
					<-ctx.Done()
					return nil
				})
				if errors.Is(err, db.ErrCrowded) {
					began <- false
				}
			})
			free = <-began
		}
		s.b.SetAudienceTimeout(time.Millisecond)
		_, err = s.b.Send(ctx, s.Acme, draft, "")
		end()
		reads.Wait()
		s.Must(err)
		s.Run(s.b.Kinds()...)
		s.until(draft, broadcasts.Sent)
	})
}
