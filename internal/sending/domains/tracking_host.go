package domains

import (
	"context"
	"net/url"
	"slices"
	"strings"
)

// These are the reasons for which tracking is switched on but inactive.
const (
	NoTrackingSubdomain       = "no_tracking_subdomain"
	TrackingRecordNotVerified = "tracking_subdomain_not_verified"
	TrackingDomainNotVerified = "domain_not_verified"
)

// Tracking returns what is tracked in the emails of a domain. Tracked links lead to the domain's own tracking host if
// it is verified, and otherwise to the operator's tracking URL. If domains are trusted without DNS, the domain's own
// host may not exist, so the operator's tracking URL comes first.
func (c *Config) Tracking(d *Domain) Tracking {
	host := d.TrackingHost()
	if c.TrackingURL != "" && d.proved() && (host == "" || c.TrustDomains) {
		if u, err := url.Parse(c.TrackingURL); err == nil {
			host = strings.ToLower(u.Hostname())
		}
	}
	if host == "" {
		return Tracking{}
	}
	return Tracking{host, d.OpenTracking, d.ClickTracking}
}

// Tracking returns what is tracked in the emails of a domain.
func (s *Service) Tracking(d *Domain) Tracking { return s.c.Tracking(d) }

// TrackingInactive returns the reason for which a domain's tracking is switched on but nothing is tracked, or "".
func (s *Service) TrackingInactive(d *Domain) string {
	switch {
	case !d.OpenTracking && !d.ClickTracking, s.c.TrackingURL != "", d.TrackingHost() != "":
		return ""
	case d.TrackingSubdomain == "":
		return NoTrackingSubdomain
	case d.trackingFound() == Verified:
		return TrackingDomainNotVerified
	}
	return TrackingRecordNotVerified
}

// IsTrackingHost reports whether a host, given in lower-case ASCII, is or was a domain's verified link-tracking host.
// Links in sent emails may point to a current or former tracking host. IsTrackingHost does not require a team id,
// because a request specifies only the host.
func (s *Service) IsTrackingHost(ctx context.Context, host string) (bool, error) {
	label, parent, _ := strings.Cut(host, ".")
	if len(host) > 253 || !isLabel(label, 63) || !isHostname(parent) {
		return false, nil
	}
	return look(s, s.tracked, host, cacheFor, func() (bool, error) {
		all, err := domainsNamed(ctx, s.DB.Reader, parent)
		if err != nil {
			return false, err
		}
		d := all[parent]
		return d.proved() && slices.ContainsFunc(d.names(), func(n dnsName) bool {
			return n.name == host && n.field == "tracking_subdomain" && d.reserves(n)
		}), nil
	}, always)
}
