package emails

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/message"
)

// Recomposed is a stored email as a message that was composed again, for people who want to read it.
//
// The message differs from the delivered ones: it has no DKIM signature, its links and images are not tracked, and an
// example stands in for each recipient's unsubscribe link. With a working link, every reader of the message could
// unsubscribe its recipient.
type Recomposed struct {
	Raw       []byte
	Submitted bool // whether the sender composed the message, so that Raw is what was submitted; see [Raw]
	// Partial is true if content was left out because of the limit, or because an attachment has not been fetched yet.
	// Placeholders stand for bodies that were left out; attachments that were left out are empty. A submitted message
	// ends at the limit.
	Partial bool
}

// leftOut stands for a body that is larger than the limit.
const leftOut = "(left out here because of its size)"

// Recompose composes the message of one of the team's emails from its stored content. The bodies and the attachments
// are each left out if they have more than the given number of bytes in all. A negative number means no limit; the
// caller must then reserve the memory that [Service.Size] estimates.
//
// The error is a NotFound fault if the email or its content does not exist any more, and a Restricted fault for a
// [Private] email.
func (s *Service) Recompose(ctx context.Context, teamID, emailID string, most int) (Recomposed, error) {
	if most < 0 {
		most = math.MaxInt
	}
	e, size, err := s.GetWithin(ctx, teamID, emailID, most)
	if err != nil {
		return Recomposed{}, err
	}
	if isPrivate(e.Actor.Kind, e.Tags) {
		return Recomposed{}, fault.New(fault.Restricted, "", "The text of this email is for its recipient alone.")
	}
	var r Recomposed
	if e.isRaw {
		r, err = s.submitted(ctx, &e, most)
	} else {
		r, err = s.recompose(ctx, &e, size, most)
	}
	if _, ok := errors.AsType[*FileError](err); ok && fault.IsOutage(err) {
		err = fault.New(fault.Unavailable, "", "The stored files of this email cannot be read at present. Try again in a "+
			"moment.").Because(err)
	} else if ok {
		err = fault.NotFoundf("A part of this email is not kept any more, so its message cannot be shown.").Because(err)
	}
	return r, err
}

// submitted returns the beginning of a message that its sender composed.
func (s *Service) submitted(ctx context.Context, e *Email, most int) (Recomposed, error) {
	r := Recomposed{Submitted: true}
	text, key, err := messageInRow(ctx, s.DB.Reader, e.TeamID, e.ID)
	if err != nil {
		return r, err
	}
	if key != "" {
		file, err := s.Blobs.Get(ctx, key)
		if err != nil {
			return r, fileError(ctx, "", fmt.Errorf("open message: %w", err))
		}
		defer file.Close()
		whole := bytes.NewBuffer(text)
		// One byte more tells whether the message goes on.
		if _, err := whole.ReadFrom(io.LimitReader(file, int64(min(most, math.MaxInt-1))+1)); err != nil {
			return r, fileError(ctx, "", fmt.Errorf("read message %s: %w", key, err))
		}
		text = whole.Bytes()
	}
	text = prependFields(s.exampleUnsubscribeInfo(e).before(text), s.storedFeedback(e, e.TopicID != "" || hasField(text, "List-Id") ||
		hasField(text, "List-Unsubscribe")))
	r.Partial = len(text) > most
	r.Raw = text[:min(len(text), most)]
	return r, nil
}

// recompose composes the message of an email with bodies of the given size, which the caller has read if they are not
// larger than the limit.
func (s *Service) recompose(ctx context.Context, e *Email, size int64, most int) (r Recomposed, err error) {
	files, err := attachmentsOf(ctx, s.DB.Reader, e.TeamID, e.ID)
	if err != nil {
		return r, fmt.Errorf("load attachments of email %s: %w", e.ID, err)
	}
	p, err := s.preview(ctx, e, files)
	if err != nil {
		return r, err
	}
	m, err := e.envelope()
	if err != nil {
		return r, err
	}
	m.Headers, m.HTML, m.Text = p.Headers, p.HTML, p.Text
	if size > int64(most) {
		r.Partial, m.Text = true, leftOut
		if e.HTML != nil {
			m.HTML = leftOut
		}
	}
	var total int64
	for i := range files {
		total += files[i].Size
	}
	for i := range files {
		a := &files[i]
		f := message.Attachment{Filename: a.Filename, ContentType: a.ContentType, ContentID: a.ContentID}
		if total > int64(most) || a.blobKey == "" {
			r.Partial = true
		} else if f.Content, err = s.readContent(ctx, a); err != nil {
			return r, err
		}
		m.Attachments = append(m.Attachments, f)
	}
	if r.Raw, err = m.Compose(); err != nil {
		return r, fault.Invalidf("", "The email cannot be composed: %s", err).Because(err)
	}
	return r, nil
}

// Submitted reports whether the sender composed the message, as programs do that send by SMTP.
func (e *Email) Submitted() bool { return e.isRaw }
