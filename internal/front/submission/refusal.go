package submission

import (
	"errors"
	"fmt"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/smtpserver"
	"github.com/postrider/postrider/internal/platform/blob"
	"github.com/postrider/postrider/internal/platform/db"
)

// code is the SMTP reply for a kind of fault (RFC 5321 section 4.2, RFC 3463).
type code struct {
	reply    int
	enhanced string
}

// codes maps kinds of faults to SMTP replies. Faults of other kinds are internal errors.
var codes = map[fault.Kind]code{
	fault.Invalid:             {554, "5.6.0"},
	fault.Missing:             {554, "5.6.0"},
	fault.BadAttachment:       {554, "5.7.1"},
	fault.BadIdempotencyKey:   {554, "5.6.0"},
	fault.NotFound:            {550, "5.7.1"},
	fault.Forbidden:           {550, "5.7.1"},
	fault.NoCredential:        {530, "5.7.0"},
	fault.BadCredential:       {535, "5.7.8"},
	fault.Restricted:          {550, "5.7.1"},
	fault.OutOfScope:          {550, "5.7.1"},
	fault.Suspended:           {550, "5.7.1"},
	fault.IdempotencyMismatch: {554, "5.6.0"},
	fault.InFlight:            {451, "4.3.0"},
	fault.Locked:              {451, "4.3.0"},
	fault.TooFast:             {451, "4.7.1"},
	fault.DailyQuota:          {451, "4.7.1"},
	fault.MonthlyQuota:        {451, "4.7.1"},
	fault.Unavailable:         {451, "4.3.0"},
}

// fields holds more specific replies for faults about certain fields.
var fields = map[string]code{
	"from": {550, "5.6.0"}, // as in refuseField
	"to":   {553, "5.1.3"}, "cc": {553, "5.1.3"}, "bcc": {553, "5.1.3"},
	"attachments": {552, "5.3.4"}, // size is the only reason why attachments can be invalid
}

// refusal converts a fault to an SMTP reply. Any other error is returned unchanged, so that the listener logs it and
// tells the client to retry.
func refusal(err error) error {
	if errors.Is(err, blob.ErrFull) {
		return smtpserver.Refuse(452, "4.3.1", "There is no room for the message at present, try again later")
	}
	e, ok := errors.AsType[*fault.Error](err)
	if !ok {
		return err
	}
	if errors.Is(err, db.ErrUnknown) {
		r := smtpserver.Refuse(451, "4.3.0", "The message may have been accepted: the database was lost before it answered. "+
			"With a Postrider-Idempotency-Key it can be sent again safely")
		r.Cause = fmt.Errorf("accept a submitted message: %w", e.Unwrap())
		return r
	}
	c, known := codes[e.Kind]
	if cause := e.Unwrap(); cause != nil && (!known || e.Kind == fault.Unavailable) {
		return fmt.Errorf("accept a submitted message: %w", cause) // the cause is only logged
	}
	if !known {
		return err
	}
	if f, special := fields[e.Field]; special && e.Kind == fault.Invalid {
		c = f
	}
	return smtpserver.Refuse(c.reply, c.enhanced, "%s", e.Message)
}
