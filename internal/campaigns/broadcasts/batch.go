package broadcasts

import (
	"context"
	"slices"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/sending/emails"
)

// batch contains the contacts on a page, grouped by variant or held out.
type batch struct {
	b        *Broadcast
	n        int // number of emails passed to Enqueue, which may leave out contacts
	enqueued int // number of emails that Enqueue enqueued
	to       [][]emails.MailingRecipient
	of       [][]*contacts.Member // the contacts for the recipients in to
	held     []*contacts.Member   // held out

	got   []int           // variants that this page gave to a contact
	empty []int           // variants without a recipient; see [run.emptyVariants]
	done  map[string]bool // contacts that already have a row, in the phase walkRest
}

// seedMax is the number of contacts after which the variants of an A/B test are filled by chance alone.
const seedMax = 1000

// emptyVariants returns the variants of an A/B test that have no recipient yet. The next contacts receive these
// variants, so that each variant has a recipient in a small audience, too. While variants are empty, a page has one
// contact for each of them, because it is not known in advance who may be mailed.
func (r *run) emptyVariants(ctx context.Context, b *Broadcast) ([]int, error) {
	if b.phase != walkTest || b.Entered+b.LeftOut >= seedMax {
		return nil, nil
	}
	// Once each variant has a recipient, nothing is left to do.
	if r.empty == nil || len(r.empty) > 0 && r.emptyAt != b.position {
		r.empty, r.emptyAt = []int{}, b.position
		var all []Tally
		if b.Entered > 0 {
			var err error
			if all, _, _, err = tallies(ctx, r.s.p.DB.Reader, b.TeamID, b.ID); err != nil {
				return nil, err
			}
		}
		for i := range b.Variants {
			if i >= len(all) || all[i].Entered == 0 {
				r.empty = append(r.empty, i)
			}
		}
	}
	return r.empty, nil
}

// done returns which of the contacts the test of a broadcast in the phase walkRest has handled. Their rows say so, and
// not the hash that assigned them, because a contact that joined the audience later was not handled. The rows may be
// read before the transaction: only the transactions that advance the position insert rows.
func (r *run) done(ctx context.Context, b *Broadcast, members []contacts.Member) (map[string]bool, error) {
	if b.phase != walkRest {
		return nil, nil
	}
	ids := make([]string, len(members))
	for i := range members {
		ids[i] = members[i].ID
	}
	return recipientsAmong(ctx, r.s.p.DB.Reader, b.TeamID, b.ID, ids)
}

// assign is like [Broadcast.assign], but takes into account which variants are empty and which contacts are done.
func (p *batch) assign(contactID string) (variant int, held, now bool) {
	variant, held, now = p.b.assign(contactID)
	switch {
	case p.b.phase == walkRest:
		now = !p.done[contactID]
	case !held && len(p.empty) > 0:
		i := max(0, slices.Index(p.empty, variant))
		variant, now = p.empty[i], true
		p.empty = slices.Delete(p.empty, i, i+1)
	}
	return variant, held, now
}

// fill adds contacts in order until the batch has the maximum number of emails, and returns how many of the contacts it
// processed.
func (p *batch) fill(members []contacts.Member, most int, f *filling) (used int) {
	for i := range members {
		if p.n == most {
			return i
		}
		m := &members[i]
		variant, held, now := p.assign(m.ID)
		switch {
		case held && now:
			p.held = append(p.held, m)
		case now:
			p.to[variant] = append(p.to[variant], emails.MailingRecipient{Address: m.Address, ContactID: m.ID,
				Values: f.values(m)})
			p.of[variant] = append(p.of[variant], m)
			p.n++
		}
	}
	return len(members)
}
