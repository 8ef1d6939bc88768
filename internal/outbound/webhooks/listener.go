package webhooks

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// Kind is the job kind that delivers messages. A job's lane contains the team and the endpoint; its payload lists
// messages of one chain, in order.
const Kind = "webhook"

// perJob is the maximum number of messages per job, which is limited because each message may need the whole timeout.
const perJob = 8

// messagePrefix and attemptPrefix are the prefixes of message ids and attempt ids.
const (
	messagePrefix = "msg_"
	attemptPrefix = "atmpt_"
)

func messageID(eventID string) string { return messagePrefix + id.Compact(eventID) }

// entry is a message that is to be delivered to one or more endpoints.
type entry struct {
	ID      string
	TeamID  string
	Type    events.Type
	Payload string
	chain   string
	at      time.Time
}

// outbox collects the messages of one transaction, grouped by endpoint and chain.
type outbox struct {
	keys  []outboxKey // keys in insertion order
	lists map[outboxKey][]string
}

type outboxKey struct{ team, endpoint, chain string }

func (o *outbox) add(k outboxKey, messageID string) {
	if o.lists == nil {
		o.lists = map[outboxKey][]string{}
	}
	if o.lists[k] == nil {
		o.keys = append(o.keys, k)
	}
	o.lists[k] = append(o.lists[k], messageID)
}

// enqueue inserts a delivery of a message to an endpoint. If the endpoint is full, the new delivery has the state
// Failed.
func (o *outbox) enqueue(ctx context.Context, tx *db.Tx, x *Endpoint, m *entry) {
	if !x.FullSince.IsZero() {
		insertDelivery(ctx, tx, x.ID, m, Failed)
		return
	}
	insertDelivery(ctx, tx, x.ID, m, Pending)
	o.add(outboxKey{m.TeamID, x.ID, m.chain}, m.ID)
}

// insertJobs inserts the outbox's jobs and returns their number per team. Messages in one chain share jobs, because
// they must be delivered one after the other.
func (o *outbox) insertJobs(ctx context.Context, tx *db.Tx, q *jobs.Queue) map[string]int {
	n := map[string]int{}
	for _, k := range o.keys {
		for ids := range slices.Chunk(o.lists[k], perJob) {
			q.Insert(ctx, tx, jobs.New{Kind: Kind, Lane: lane(k.team, k.endpoint), TeamID: k.team, Payload: strings.Join(ids,
				",")})
			n[k.team]++
		}
	}
	return n
}

// Recorded inserts a message for each event that an endpoint selects. The recorder calls Recorded for every event. For
// teams without endpoints, Recorded needs only a look-up in memory.
func (s *Service) Recorded(ctx context.Context, tx *db.Tx, all []events.Event) error {
	var endpoints []*Endpoint
	var team string
	var out outbox
	direct := 0
	w := writer{s: s}
	for i := range all {
		e := &all[i]
		switch e.Type {
		case events.EmailQueued, events.EmailCanceled, events.EmailUnsubscribed:
			continue // this event type is only for the timeline
		}
		if team != e.TeamID {
			var err error
			if endpoints, err = s.endpoints.forTx(ctx, tx, e.TeamID); err != nil {
				return err
			}
			team = e.TeamID
		}
		subscribed := subscribersOf(endpoints, e.Type)
		if len(subscribed) == 0 {
			continue
		}
		body, chain, err := w.payload(ctx, tx, e)
		if err != nil {
			return err
		}
		if body == "" {
			continue
		}
		m := entry{messageID(e.ID), e.TeamID, e.Type, body, chain, e.At}
		insertMessage(ctx, tx, &m)
		if direct += len(subscribed); len(subscribed) > directMax || len(subscribed) > directFew && direct > directAll {
			if err := s.enqueueFanout(ctx, tx, &m); err != nil {
				return err
			}
			continue
		}
		for _, x := range subscribed {
			out.enqueue(ctx, tx, x, &m)
		}
	}
	s.insertJobs(ctx, tx, &out)
	return nil
}
