package resources

import (
	"context"
	"io"

	"github.com/postrider/postrider/internal/sending/dnsadvice"
	"github.com/postrider/postrider/internal/sending/domainconnect"
	"github.com/postrider/postrider/internal/sending/metrics"
)

// connectOwner is the owner of fetches from DNS providers. All of them share the connection limits of this owner.
const connectOwner = "domain connect"

// newAdvice builds the services that advise on the DNS of domains.
func (r *Resources) newAdvice(c Config) (err error) {
	r.Connect, err = domainconnect.New(c.DomainConnect, domainconnect.Deps{DB: r.DB, Keys: r.Keys, DNS: r.DNS,
		Fetch: func(ctx context.Context, url string, most int64) ([]byte, error) {
			f, err := r.Guard.Fetch(ctx, connectOwner, url, most)
			if err != nil {
				return nil, err
			}
			defer f.Close()
			return io.ReadAll(f)
		}})
	if err != nil {
		return err
	}
	r.Advice, err = dnsadvice.New(c.DNSProviders, dnsadvice.Deps{DNS: r.DNS, Authority: r.authority(), Log: r.Log,
		Suggest: c.Domains.Suggest,
		Connect: r.Connect, BIMI: &dnsadvice.BIMI{DNS: r.DNS, Guard: r.Guard, Roots: c.MarkRoots},
		Count: func(ctx context.Context, teamID string, q metrics.Query) ([]metrics.Count, error) {
			return r.Metrics.Count(ctx, teamID, q)
		}})
	return err
}
