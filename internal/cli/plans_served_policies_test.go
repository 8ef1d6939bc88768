package cli

import (
	"context"
	"crypto/x509"
	"errors"
	"time"

	"github.com/postrider/postrider/internal/mail/mtasts"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/servedpolicies"
)

// servedPolicies publishes the policy of a domain, checks it, withdraws it, and checks it after its end.
func (d *driver) servedPolicies() {
	d.t.Helper()
	ctx, on := d.t.Context(), true
	must := func(err error) {
		d.t.Helper()
		if err != nil {
			d.t.Fatal(err)
		}
	}
	by, err := d.Teams.Authenticate(ctx, d.key)
	must(err)
	domain, err := d.Domains.AddVerified(ctx, by.TeamID, domains.NewDomain{Name: "policy.example",
		Capabilities: domains.Capabilities{Receiving: &on}})
	must(err)
	var later time.Duration
	dns := resolve.Fake{CNAMERecords: map[string]string{"mta-sts.policy.example": "mail.example"},
		MXRecords: map[string][]resolve.MX{"policy.example": {{Host: "mx.example"}}}}
	s, err := servedpolicies.New(servedpolicies.Config{PublicHost: "mail.example",
		Now: func() time.Time { return d.DB.Now().Add(later) }}, servedpolicies.Deps{DB: d.DB, Recorder: d.Recorder,
		Domains: d.Domains, DNS: dns, Notify: d.Notifications.Notify,
		Suspended: func(context.Context, string) (bool, error) { return false, nil },
		Fetch: func(context.Context, string) (mtasts.Policy, mtasts.Result, string) {
			return mtasts.Policy{}, mtasts.FetchError, "it is not there"
		},
		Certificate: func(context.Context, string) (*x509.Certificate, error) { return &x509.Certificate{}, nil }})
	must(err)
	for _, mode := range []servedpolicies.Mode{servedpolicies.Testing, servedpolicies.Off} {
		_, err := s.Set(ctx, by.TeamID, domain.ID, servedpolicies.Change{Mode: mode})
		must(err)
		_, err = s.Body(ctx, "mta-sts.policy.example")
		must(err)
		must(s.Check(ctx))
		later += 48 * time.Hour
	}
	must(s.Check(ctx))
	_, err = s.Withdrawn(ctx)
	must(err)
	// The policy of a domain that is deleted is looked for by its name.
	if _, err = s.Body(ctx, "mta-sts.withdrawn.example"); !errors.Is(err, servedpolicies.ErrNoPolicy) {
		must(err)
	}
}
