package domains

import (
	"context"
	"slices"
	"strings"
	"time"
)

// IsTrackingHost reports whether a host, given in lower-case ASCII, is or was a domain's verified link-tracking host.
// Links in sent emails may point to a current or former tracking host. IsTrackingHost does not require a team id,
// because a request specifies only the host.
func (s *Service) IsTrackingHost(ctx context.Context, host string) (bool, error) {
	label, parent, _ := strings.Cut(host, ".")
	if len(host) > 253 || !isLabel(label, 63) || !isHostname(parent) {
		return false, nil
	}
	now := time.Now()
	s.mu.Lock()
	c, ok := s.tracked[host]
	s.mu.Unlock()
	if ok && now.Before(c.until) {
		return c.value, nil
	}
	all, err := domainsNamed(ctx, s.DB.Reader, parent)
	if err != nil {
		return false, err
	}
	d := all[parent]
	tracks := d.proved() && slices.ContainsFunc(d.names(), func(n dnsName) bool {
		return n.name == host && n.field == "tracking_subdomain" && d.reserves(n)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.tracked) >= cacheMax {
		clear(s.tracked)
	}
	s.tracked[host] = cached[bool]{tracks, now.Add(cacheFor)}
	return tracks, nil
}
