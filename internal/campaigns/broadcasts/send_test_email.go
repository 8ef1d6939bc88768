package broadcasts

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/content"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/render"
)

// testTag is the name of the tag on test emails. The tag's value is the broadcast's id.
const testTag = "broadcast_test"

// TestSend is a request to send test emails.
type TestSend struct {
	To      []string // recipient addresses; they need not belong to contacts
	Contact string   // id or address of the contact whose values are used; "" for the fallbacks
	Variant int
}

// SendTest sends a broadcast as a test to the given addresses, and returns the ids of the emails. Test emails have a
// tag and are not part of the broadcast. Test emails have neither a Reply-To header field nor an unsubscribe link.
func (s *Service) SendTest(ctx context.Context, by teams.Actor, broadcastID string, t TestSend) (ids []string,
	err error) {
	b, err := s.Get(ctx, by.TeamID, broadcastID)
	if err != nil {
		return nil, err
	}
	if len(t.To) == 0 {
		return nil, fault.MissingField("to")
	}
	if len(t.To) > MaxTestSend {
		return nil, fault.Invalidf("to", "The `to` field has %d addresses; the limit of a test is %d.", len(t.To),
			MaxTestSend)
	}
	all, err := s.contents(ctx, &b)
	if err != nil {
		return nil, err
	}
	if t.Variant < 0 || t.Variant >= len(all) {
		return nil, fault.Invalidf("variant", "The `variant` field must be 0 to %d.", len(all)-1)
	}
	c := *all[t.Variant]
	c.ReplyTo, c.Kept = nil, false // the content is deleted with the last test email
	compiled := content.Compile(&c)
	values, err := s.testValues(ctx, by.TeamID, t.Contact, compiled)
	if err != nil {
		return nil, err
	}
	if _, err := s.p.Emails.MailingOf(ctx, by, compiled, false); err != nil {
		return nil, err
	}
	if err := s.p.DB.Update(ctx, func(tx *db.Tx) error {
		c.ID = ""
		return s.p.Contents.Add(ctx, tx, &c)
	}); err != nil {
		return nil, fmt.Errorf("store the text of a test send: %w", err)
	}
	m, err := s.p.Emails.Mailing(ctx, by, c.ID, false)
	if err != nil {
		return nil, err
	}
	m.Tags = []emails.Tag{{Name: testTag, Value: b.ID}}
	to := make([]emails.MailingRecipient, len(t.To))
	for i, address := range t.To {
		to[i] = emails.MailingRecipient{Address: address, Values: values}
	}
	err = s.p.DB.Update(ctx, func(tx *db.Tx) error {
		ids = nil
		done, err := s.p.Emails.Enqueue(ctx, tx, m, to)
		if err != nil {
			return err
		}
		for _, one := range done {
			if one.Err != nil {
				return one.Err // an error rolls back all test emails
			}
			ids = append(ids, one.ID)
		}
		return nil
	})
	return ids, err
}

// testValues returns a contact's placeholder values for test emails, or nil if no contact is given.
func (s *Service) testValues(ctx context.Context, teamID, contact string, c *content.Compiled) (render.Values, error) {
	if contact == "" {
		return nil, nil
	}
	of, err := s.p.Contacts.Get(ctx, teamID, contact)
	if fault.KindOf(err) == fault.NotFound {
		return nil, fault.Invalidf("contact", "The `contact` field names no contact of this team.")
	}
	if err != nil {
		return nil, err
	}
	m := contacts.Member{Contact: of}
	if m.Properties, err = s.p.Contacts.Values(ctx, s.p.DB.Reader, teamID, of.ID); err != nil {
		return nil, err
	}
	f, err := s.fillingOf(ctx, teamID, []*content.Compiled{c})
	return f.values(&m), err
}
