package webhooks

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/events"
	"github.com/postrider/postrider/internal/jobs"
)

// Kind is the kind of the jobs that deliver. Its lane is the team and the endpoint; its payload the messages of one
// chain, in order.
const Kind = "webhook"

// perJob is how many messages one job delivers at most: each may take the whole timeout.
const perJob = 8

// messagePrefix and attemptPrefix stand before ids that are seen outside.
const (
	messagePrefix = "msg_"
	attemptPrefix = "atmpt_"
)

func messageID(eventID string) string { return messagePrefix + strings.ReplaceAll(eventID, "-", "") }

// entry is a message that some endpoints are told.
type entry struct {
	ID      string
	TeamID  string
	Type    events.Type
	Payload string
	chain   string
	at      time.Time
}

// outbox gathers, by endpoint and chain, what one transaction has to tell.
type outbox struct {
	keys  []outboxKey // in the order in which they came
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

// enter enters the delivery of a message to an endpoint. At one that is full it has failed.
func (o *outbox) enter(ctx context.Context, tx *db.Tx, x *Endpoint, m *entry) {
	if !x.FullSince.IsZero() {
		insertDelivery(ctx, tx, x.ID, m, Failed)
		return
	}
	insertDelivery(ctx, tx, x.ID, m, Pending)
	o.add(outboxKey{m.TeamID, x.ID, m.chain}, m.ID)
}

// insert enters the jobs and says how many of each team. Messages of a chain that come together go in one job: they
// would only wait for each other.
func (o *outbox) insert(ctx context.Context, tx *db.Tx, q *jobs.Queue) map[string]int {
	n := map[string]int{}
	for _, k := range o.keys {
		for part := range slices.Chunk(o.lists[k], perJob) {
			q.Insert(ctx, tx, jobs.New{Kind: Kind, Lane: lane(k.team, k.endpoint), TeamID: k.team, Payload: strings.Join(part, ",")})
			n[k.team]++
		}
	}
	return n
}

// Recorded enters a message for each event that an endpoint wants. The recorder calls it for every event, so for teams
// without endpoints it does nothing but look into memory.
func (s *Service) Recorded(ctx context.Context, tx *db.Tx, all []events.Event) error {
	var endpoints []*Endpoint
	var team string
	var out outbox
	direct := 0
	w := writer{s: s}
	for i := range all {
		e := &all[i]
		if e.Type == events.EmailQueued || e.Type == events.EmailCanceled {
			continue // for the timeline alone
		}
		if team != e.TeamID {
			var err error
			if endpoints, err = s.known.during(ctx, tx, e.TeamID); err != nil {
				return err
			}
			team = e.TeamID
		}
		told := wanting(endpoints, e.Type)
		if len(told) == 0 {
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
		if direct += len(told); len(told) > directMax || len(told) > directFew && direct > directAll {
			if err := s.enterFanout(ctx, tx, &m); err != nil {
				return err
			}
			continue
		}
		for _, x := range told {
			out.enter(ctx, tx, x, &m)
		}
	}
	s.insert(ctx, tx, &out)
	return nil
}
