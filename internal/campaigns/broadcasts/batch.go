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

	got     []int           // variants that this page gave to a contact
	empty   []int           // variants without a recipient; see [run.emptyVariants]
	seeding bool            // whether there were empty variants before this page
	refused map[string]bool // contacts that are known not to be mailable, if seeding
	done    map[string]bool // contacts that already have a row, in the phase walkRest
}

// seedMax is the number of emails after which the variants of an A/B test are filled by chance alone.
const seedMax = 1000

// emptyVariants returns the variants of an A/B test that have no recipient yet. The next contacts who may be mailed
// receive these variants, so that each variant has a recipient in a small audience, too. While variants are empty, a
// page has one such contact for each of them, because only the page's transaction finds out who is mailed.
func (r *run) emptyVariants(ctx context.Context, b *Broadcast) ([]int, error) {
	if b.phase != walkTest || b.Entered >= seedMax {
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

// refused returns which of the contacts may not be mailed, as far as this is known before the transaction. They do not
// fill empty variants, and so a page may have many of them.
func (r *run) refused(ctx context.Context, b *Broadcast, members []contacts.Member) (map[string]bool, error) {
	ids, to := make([]string, len(members)), make([]emails.MailingRecipient, len(members))
	for i := range members {
		ids[i], to[i].Address = members[i].ID, members[i].Address
	}
	now, err := r.s.p.Contacts.AudienceMembers(ctx, r.s.p.DB.Reader, b.TeamID, b.TopicID, ids)
	if err != nil {
		return nil, err
	}
	mailable, err := r.s.p.Emails.MailableRecipients(ctx, r.mailings[0], to)
	if err != nil {
		return nil, err
	}
	refused := map[string]bool{}
	for i, contactID := range ids {
		refused[contactID] = !mailable[i] || now[contactID].Refused != ""
	}
	return refused, nil
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
	case !held && len(p.empty) > 0 && !p.refused[contactID]:
		i := max(0, slices.Index(p.empty, variant))
		variant, now = p.empty[i], true
		p.empty = slices.Delete(p.empty, i, i+1)
	}
	return variant, held, now
}

// fill adds contacts in order until the batch has the maximum number of emails, and returns how many of the contacts it
// processed. While variants are empty, the batch ends with the contact who fills the last of them.
func (p *batch) fill(members []contacts.Member, most int, f *filling) (used int) {
	for i := range members {
		if p.n == most || p.seeding && len(p.empty) == 0 {
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
