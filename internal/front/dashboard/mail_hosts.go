package dashboard

import (
	"context"

	"github.com/postrider/postrider/internal/mail/dane"
)

// MailHost is a host of this installation that receives mail, with the TLSA records (DANE) that the operator publishes.
type MailHost struct {
	Host  string
	InUse dane.Record // empty without a certificate that keeps its key
	Next  dane.Record // empty if Postrider does not manage the key
	// Published is the number of records in the DNS. Signed and Unsigned say whether the zone of the host is signed
	// (DNSSEC); both are false if that is unknown.
	Published        int
	Signed, Unsigned bool
	Problem          string // why senders that obey the records send no mail; "" if nothing is known to be wrong
}

// Name returns the name of the records.
func (h MailHost) Name() string { return "_25._tcp." + h.Host }

// Record returns the record of the key in use, or "".
func (h MailHost) Record() string { return recordText(h.InUse) }

// NextRecord returns the record of the next key, or "".
func (h MailHost) NextRecord() string { return recordText(h.Next) }

func recordText(r dane.Record) string {
	if len(r.Data) == 0 {
		return ""
	}
	return r.String()
}

// mailHosts returns the hosts that receive mail, if the team is the operator's and the visitor may change settings.
func (c *call) mailHosts(ctx context.Context, may bool) ([]MailHost, error) {
	if !may {
		return nil, nil
	}
	return c.MailHosts(ctx, c.team.TeamID)
}
