package broadcasts

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
)

// emailUpdate contains the changes to one broadcast email that result from the events in one transaction.
type emailUpdate struct {
	broadcastID, teamID, emailID string

	state          state // "" for no change
	reason, bounce string

	opens, clicks                             int
	opened, clicked, complained, unsubscribed bool

	links map[string]int // clicks by URL
}

// order is the rank of each state. A state never replaces a state with a higher rank.
var order = map[state]int{sent: 1, delivered: 2, canceled: 3, leftOut: 3, suppressed: 4, failed: 4, bounced: 4}

// Recorded updates the recipients of broadcasts according to the events for their emails. Recorded implements
// events.Listener.
func (s *Service) Recorded(ctx context.Context, tx *db.Tx, all []events.Event) error {
	var list []*emailUpdate
	for i := range all {
		e := &all[i]
		if e.BroadcastID == "" || e.EmailID == "" || e.Type == events.EmailQueued {
			continue
		}
		at := slices.IndexFunc(list, func(h *emailUpdate) bool { return h.emailID == e.EmailID })
		if at < 0 {
			at = len(list)
			list = append(list, &emailUpdate{broadcastID: e.BroadcastID, teamID: e.TeamID, emailID: e.EmailID})
		}
		list[at].add(e)
	}
	// Transactions share the rows of links. All transactions change the rows of links in the same order, to avoid
	// deadlocks.
	slices.SortFunc(list, func(a, b *emailUpdate) int {
		return cmp.Or(cmp.Compare(a.broadcastID, b.broadcastID), cmp.Compare(a.emailID, b.emailID))
	})
	type click struct {
		*emailUpdate
		link, url string
	}
	var clicks []click
	for _, h := range list {
		if h.state != "" {
			advance(ctx, tx, h)
		}
		if h.opens+h.clicks > 0 || h.complained || h.unsubscribed {
			count(ctx, tx, h)
		}
		for url := range h.links {
			sum := sha256.Sum256([]byte(url))
			clicks = append(clicks, click{h, hex.EncodeToString(sum[:16]), url})
		}
		if h.state == bounced || h.complained {
			s.watch(ctx, tx, h.teamID, h.broadcastID, tx.Now().Add(guardDelay))
		}
	}
	slices.SortStableFunc(clicks, func(a, b click) int {
		return cmp.Or(cmp.Compare(a.broadcastID, b.broadcastID), cmp.Compare(a.link, b.link))
	})
	for _, c := range clicks {
		countLink(ctx, tx, c.emailUpdate, c.link, c.url, c.links[c.url])
	}
	return nil
}

// add adds the changes that result from one event to the update.
func (h *emailUpdate) add(e *events.Event) {
	to := state("")
	switch e.Type {
	case events.EmailSent, events.EmailDelayed:
		if _, withheld := e.Data.(*events.Delayed); !withheld {
			to = sent
		}
	case events.EmailDelivered:
		to = delivered
	case events.EmailBounced:
		to = bounced
	case events.EmailFailed:
		to = failed
	case events.EmailSuppressed:
		to = suppressed
	case events.EmailCanceled:
		to = canceled
		if _, ok := e.Data.(*events.Canceled); ok { // the contact was deleted; no user canceled the email
			to = leftOut
		}
	case events.EmailComplained:
		h.complained = true
	case events.EmailUnsubscribed:
		h.unsubscribed = true
	case events.EmailOpened:
		h.opens++
		if d, ok := e.Data.(*events.Open); ok {
			h.opened = h.opened || !d.Is
		}
	case events.EmailClicked:
		h.clicks++
		if d, ok := e.Data.(*events.Click); ok {
			h.clicked = h.clicked || !d.Is
			if h.links == nil {
				h.links = map[string]int{}
			}
			h.links[d.Link]++
		}
	}
	if order[to] <= order[h.state] {
		return
	}
	h.state, h.reason, h.bounce = to, "", ""
	switch d := e.Data.(type) {
	case *events.Bounce:
		h.bounce = strings.ToLower(d.Type)
	case *events.Failed:
		h.reason = d.Reason
	case *events.Canceled:
		h.reason = d.Reason
	}
	if to == suppressed {
		h.reason = "suppressed"
	}
}
