package broadcasts

import (
	"context"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/platform/db"
)

// refresh updates a page of contacts that was read before the transaction began. Deleted contacts are removed, changed
// addresses are replaced (including in placeholders), and contacts that may not be mailed are marked. The contacts'
// other fields and properties are not updated.
func (r *run) refresh(ctx context.Context, tx *db.Tx, b *Broadcast, p *batch) error {
	var ids []string
	for _, all := range append(p.of, p.held) {
		for _, m := range all {
			ids = append(ids, m.ID)
		}
	}
	now, err := r.s.p.Contacts.AudienceMembers(ctx, tx.Reader, b.TeamID, b.TopicID, ids)
	if err != nil {
		return err
	}
	for variant, all := range p.of {
		to, of := p.to[variant][:0], all[:0]
		for i, m := range all {
			c, exists := now[m.ID]
			if !exists {
				continue
			}
			one := p.to[variant][i]
			one.Refused = c.Refused
			if c.Address != m.Address {
				m = withAddress(m, c.Address)
				one.Address, one.Values = m.Address, r.filling.values(m)
			}
			to, of = append(to, one), append(of, m)
		}
		p.to[variant], p.of[variant] = to, of
	}
	held := p.held[:0]
	for _, m := range p.held {
		if c, exists := now[m.ID]; exists {
			held = append(held, withAddress(m, c.Address))
		}
	}
	p.held = held
	return nil
}

// withAddress returns a contact with the given address. If the contact has a different address, withAddress returns a
// changed copy, because the transaction may be retried with the original.
func withAddress(m *contacts.Member, address string) *contacts.Member {
	if m.Address == address {
		return m
	}
	moved := *m
	moved.Address = address
	return &moved
}
