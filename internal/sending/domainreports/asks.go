package domainreports

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/mail/dmarc"
	"github.com/postrider/postrider/internal/mail/resolve"
)

// asksOf returns what a record asks of receivers: the policy, and what remains of it in test mode. Without a record,
// receivers do the same as with the policy none.
func asksOf(found *dmarc.Discovery) string {
	return string(cmp.Or(found.Requested, dmarc.None) + "/" + cmp.Or(found.Policy, dmarc.None))
}

// asksOfText is [asksOf] for the record that this installation publishes for a domain.
func asksOfText(domain, text string) string {
	own := func(_ context.Context, name string) ([]string, error) {
		if name == "_dmarc."+domain {
			return []string{text}, nil
		}
		return nil, fmt.Errorf("%w: %s", resolve.ErrNotFound, name)
	}
	found, _ := dmarc.NewWalker(own).Discover(context.Background(), domain) // the function own asks nobody
	return asksOf(&found)
}

// setAsks stores what the present record asks of receivers. A change begins the time again.
func (x *storedRecords) setAsks(asks string, now time.Time) {
	if x.asks != "" && x.asks != asks {
		x.asksSince = now.UnixMicro()
	}
	x.asks = asks
}

// since returns since when the domain's record asks of receivers what it does now; the zero time means since before the
// first look-up.
func (x *storedRecords) since(asks string, now time.Time) time.Time {
	switch {
	case x.asks != "" && x.asks != asks:
		return now // the change is not stored yet
	case x.asksSince == 0:
		return time.Time{}
	}
	return time.UnixMicro(x.asksSince)
}
