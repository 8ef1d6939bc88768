package receiving

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/domainreports"
	"github.com/postrider/postrider/internal/sending/emails"
)

// Limits on the values that are stored in a row. The raw message still contains the complete values.
const (
	subjectMax    = 4 << 10 // bytes
	messageIDMax  = 998     // bytes
	addressesMax  = 1000    // maximum number of addresses per header field
	filesMax      = 1000
	filenameMax   = 1024 // bytes
	referencesMax = 20   // maximum number of Message-IDs looked up per message
)

// store inserts one received email per team, and records the events from reports. The boolean result is true if a row
// refers to the raw message.
func (s *Service) store(ctx context.Context, m *incoming) (needsRaw bool, err error) {
	outcomes, rest, err := s.outcomes(ctx, m)
	if err != nil {
		return false, err
	}
	rows, err := s.drafts(ctx, m, rest)
	if err != nil {
		return false, err
	}
	reports, err := s.readReports(ctx, m)
	if err != nil {
		return false, err
	}
	if len(outcomes) == 0 && len(rows) == 0 && len(reports) == 0 {
		return false, nil
	}
	return len(rows) > 0, s.p.DB.Update(ctx, func(tx *db.Tx) error {
		var all []events.Event
		var arrivals []emails.Arrival
		m.emailIDs = m.emailIDs[:0]
		for _, e := range rows {
			// The id of a received email is created within the transaction that inserts the email. If the id were
			// created earlier, a client that polls the list could miss the email, because the client may already have
			// read a greater id.
			e.ID, e.CreatedAt = id.At(tx.Now()), tx.Now()
			e.ThreadID = cmp.Or(e.ThreadID, e.ID)
			if err := insertEmail(ctx, tx, &e, m); err != nil {
				return err
			}
			m.emailIDs = append(m.emailIDs, e.ID)
			all = append(all, receivedEvent(&e))
			arrivals = append(arrivals, emails.Arrival{TeamID: e.TeamID, EmailID: e.ID, To: e.to})
		}
		if s.p.Forward != nil && len(arrivals) > 0 {
			if err := s.p.Forward(ctx, tx, arrivals); err != nil {
				return fmt.Errorf("forward a received email: %w", err)
			}
		}
		if err := s.count(ctx, tx, rows); err != nil {
			return err
		}
		for _, d := range reports {
			if err := s.p.Reports.Store(ctx, tx, d); err != nil {
				return err
			}
		}
		for _, e := range reportedEmails(outcomes) {
			before, err := emails.LockReportHistory(ctx, tx, e.TeamID, e.ID, addressesIn(outcomes, e.ID))
			if err != nil {
				return err
			}
			for _, o := range outcomes {
				if o.email.ID == e.ID && before.First(o.address, o.typ) {
					all = append(all, events.Event{TeamID: e.TeamID, Type: o.typ, EmailID: e.ID, DomainID: e.DomainID,
						BroadcastID: e.BroadcastID, Recipient: o.address, ContactID: e.ContactID, OneRecipient: e.OneRecipient,
						ForwardRule: e.ForwardRule, Data: o.data})
				}
			}
		}
		if len(all) == 0 {
			return nil
		}
		return s.p.Recorder.Record(ctx, tx, all...)
	})
}

// readReports reads the reports in a message, once for each domain whose report address is a recipient. The result is
// sorted by domain id, so that concurrent transactions lock the domains in the same order.
func (s *Service) readReports(ctx context.Context, m *incoming) (all []*domainreports.Draft, err error) {
	var on []domainreports.Target
	for _, p := range m.to {
		if p.reportsOn.DomainID != "" && !slices.Contains(on, p.reportsOn) {
			on = append(on, p.reportsOn)
		}
	}
	slices.SortFunc(on, func(a, b domainreports.Target) int { return cmp.Compare(a.DomainID, b.DomainID) })
	for _, t := range on {
		var d *domainreports.Draft
		if !s.catchPanic(m.id, func() {
			d, err = s.p.Reports.Read(ctx, t, domainreports.Message{Parsed: m.parsed, Results: m.auth})
		}) {
			d, err = domainreports.UnreadableDraft(t), nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}

// count charges the received emails to their teams' quotas, in the order that package quotas requires.
func (s *Service) count(ctx context.Context, tx *db.Tx, rows []Email) error {
	var teamIDs []string
	for i := range rows {
		teamIDs = append(teamIDs, rows[i].TeamID)
	}
	slices.Sort(teamIDs)
	for _, teamID := range teamIDs {
		if err := s.p.Quotas.CountReceived(ctx, tx, teamID, 1); err != nil {
			return err
		}
	}
	return nil
}

// drafts returns the emails to insert for a message, one per team and still without ids. An email that starts a
// conversation has no thread id yet.
func (s *Service) drafts(ctx context.Context, m *incoming, to []target) ([]Email, error) {
	var all []Email
	var teamIDs []string
	for _, p := range to {
		i := slices.Index(teamIDs, p.teamID)
		if i < 0 {
			e := m.draft()
			e.TeamID = p.teamID
			all, teamIDs, i = append(all, e), append(teamIDs, p.teamID), len(all)
		}
		e := &all[i]
		if !slices.Contains(e.ReceivedFor, p.address) {
			e.ReceivedFor = append(e.ReceivedFor, p.address)
		}
		e.DomainID = cmp.Or(e.DomainID, p.domainID)
		if p.domainID != "" {
			e.to = append(e.to, emails.ArrivalAddress{Address: p.address, DomainID: p.domainID})
		}
	}
	threads, err := s.threads(ctx, teamIDs, references(m.parsed.InReplyTo, m.parsed.References))
	for i := range all {
		all[i].ThreadID = threads[all[i].TeamID]
	}
	return all, err
}

// draft returns an email in which only the fields that are the same for all teams are set.
func (m *incoming) draft() Email {
	p := m.parsed
	e := Email{From: m.origin.MailFrom, To: addressesOf(p.To), Cc: addressesOf(p.Cc), Bcc: addressesOf(p.Bcc),
		ReplyTo: addressesOf(p.ReplyTo), Subject: db.Text(p.Subject, subjectMax), MessageID: db.Text(p.MessageID,
			messageIDMax),
		Origin: m.origin, Authentication: m.auth, Spam: m.spam, Size: int64(len(m.raw)), blobKey: m.blobKey}
	if len(p.From) > 0 {
		e.From = db.Text(p.From[0].Addr(), 320)
	}
	for i := range p.Files[:min(len(p.Files), filesMax)] {
		f := &p.Files[i]
		e.Files = append(e.Files, File{ID: id.New(), Filename: db.Text(f.Filename, filenameMax),
			ContentType: cmp.Or(db.Text(f.ContentType, 255), "application/octet-stream"), Disposition: db.Text(f.Disposition,
				20),
			ContentID: db.Text(f.ContentID, messageIDMax), Size: int64(len(f.Content))})
	}
	return e
}

func addressesOf(list []message.Address) []string {
	all := make([]string, 0, min(len(list), addressesMax))
	for _, a := range list[:min(len(list), addressesMax)] {
		all = append(all, db.Text(a.Addr(), 320))
	}
	return all
}

func receivedEvent(e *Email) events.Event {
	r := &events.Received{ID: e.ID, CreatedAt: e.CreatedAt, From: e.From, To: e.To, Cc: e.Cc, Bcc: e.Bcc,
		ReceivedFor: e.ReceivedFor,
		MessageID:   e.MessageID, Subject: e.Subject}
	for _, f := range e.Files {
		r.Attachments = append(r.Attachments, events.ReceivedFile{ID: f.ID, Filename: f.Filename, ContentType: f.ContentType,
			Disposition: f.Disposition, ContentID: f.ContentID})
	}
	return events.Event{TeamID: e.TeamID, Type: events.EmailReceived, DomainID: e.DomainID, Data: r}
}

// threads returns the thread id of a message's conversation for each team. The conversation of a message is that of the
// nearest received or sent email to which the message refers. Teams for which the message starts a new conversation are
// not in the map. The query runs outside the transaction, so that it does not block other transactions. If a message
// and its reply arrive at the same moment, the reply may start a second conversation.
func (s *Service) threads(ctx context.Context, teamIDs, refs []string) (map[string]string, error) {
	if len(refs) == 0 || len(teamIDs) == 0 {
		return nil, nil
	}
	known, err := threadsOf(ctx, s.p.DB.Reader, teamIDs, refs)
	if err != nil {
		return nil, fmt.Errorf("look for the conversation of a message: %w", err)
	}
	found := map[string]string{}
	for _, teamID := range teamIDs {
		for _, ref := range refs {
			found[teamID] = cmp.Or(found[teamID], known[teamID][ref])
		}
	}
	// Among the sent emails in a conversation, the oldest determines the thread, because later emails have no thread
	// id.
	var sent []string
	for _, ref := range slices.Backward(refs) {
		if emailID, ok := emails.FromMessageID(ref); ok {
			sent = append(sent, emailID)
		}
	}
	teamOf, err := s.p.Emails.TeamsOf(ctx, teamIDs, sent)
	for _, emailID := range sent {
		if teamID, ok := teamOf[emailID]; ok {
			found[teamID] = cmp.Or(found[teamID], emailID)
		}
	}
	return found, err
}

// SentThread returns the thread id of one of the team's sent emails.
func (s *Service) SentThread(ctx context.Context, teamID, emailID string) (string, error) {
	refs, err := s.p.Emails.References(ctx, teamID, emailID)
	if err != nil {
		return "", err
	}
	threads, err := s.threads(ctx, []string{teamID}, references(refs, nil))
	return cmp.Or(threads[teamID], emailID), err
}

// references returns the Message-IDs to which a message refers, nearest first. If a message has too many references,
// the result contains the nearest ones and the first message of the conversation (RFC 5322 section 3.6.4).
func references(inReplyTo, refs []string) []string {
	var all []string
	add := func(ref string, most int) {
		if ref = db.Text(strings.TrimSpace(ref), messageIDMax); ref != "" && !slices.Contains(all, ref) && len(all) < most {
			all = append(all, ref)
		}
	}
	for _, ref := range inReplyTo[:min(len(inReplyTo), referencesMax)] {
		add(ref, referencesMax-1)
	}
	for _, ref := range slices.Backward(refs[max(0, len(refs)-referencesMax):]) {
		add(ref, referencesMax-1)
	}
	if len(refs) > 0 {
		add(refs[0], referencesMax)
	}
	return all
}
