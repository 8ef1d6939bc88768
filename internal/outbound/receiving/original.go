package receiving

import (
	"bytes"
	"context"

	"github.com/postrider/postrider/internal/platform/events"
)

// Original is a received email with its raw message, which the caller must close.
type Original struct {
	Email
	// Raw begins with the Received field of this installation, whose length is TraceBytes. Raw has no Return-Path
	// field, because only the host of final delivery adds one.
	Raw        []byte
	TraceBytes int

	memory *reservation
}

// Close releases the memory of the raw message.
func (o *Original) Close() { o.memory.shrink(0) }

// Original returns a received email with its raw message.
func (s *Service) Original(ctx context.Context, teamID, emailID string) (o Original, err error) {
	if o.Email, err = getEmail(ctx, s.p.DB.Reader, teamID, emailID); err != nil {
		return o, err
	}
	if o.Raw, o.memory, err = s.raw(ctx, &o.Email); err != nil {
		return o, err
	}
	o.TraceBytes = traceLength(o.Raw)
	if path := bytes.Index(o.Raw[:o.TraceBytes], []byte("\r\n")); path >= 0 {
		o.Raw, o.TraceBytes = o.Raw[path+2:], o.TraceBytes-path-2
	}
	return o, nil
}

// Event returns the event that was recorded when an email was received, with the email's id and time.
func (s *Service) Event(ctx context.Context, teamID, emailID string) (events.Event, error) {
	e, err := getEmail(ctx, s.p.DB.Reader, teamID, emailID)
	if err != nil {
		return events.Event{}, err
	}
	x := receivedEvent(&e)
	x.ID, x.At = e.ID, e.CreatedAt
	return x, nil
}
