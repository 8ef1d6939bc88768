package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/platform/certs"
	"github.com/postrider/postrider/internal/platform/telemetry"
)

const (
	certificatesEvery = 30 * time.Second // interval at which the list of certificates is read
	certificatesTime  = 10 * time.Second // time limit for reading it
	// certificateWait is how long a host may have no certificate before that is a problem, unless a request has failed.
	certificateWait = 5 * time.Minute
)

// certificateList is what a node knows of the certificates of its listeners' hosts. The list is read from the database
// in the background. Scrapes, checks and alarms use it, so they do not wait for the database.
type certificateList struct {
	mu    sync.Mutex
	known bool
	own   []certs.Status
	since map[string]time.Time // when hosts were first found without a certificate
}

// watchCertificates reads the list until ctx ends. While the database is unavailable, the list stays as it is.
func (n *Node) watchCertificates(ctx context.Context) {
	tick := time.NewTicker(certificatesEvery)
	defer tick.Stop()
	for {
		limited, cancel := context.WithTimeout(ctx, certificatesTime)
		// Other checks report that the database is away. A manager that was closed belongs to a node that stops.
		if all, err := n.certs.Certificates(limited); err == nil {
			n.certificates.set(all, time.Now())
		}
		cancel()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// set replaces the list.
func (l *certificateList) set(all []certs.Status, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.since
	l.known, l.own, l.since = true, nil, map[string]time.Time{}
	for _, s := range all {
		if !s.Own || len(s.Names) == 0 {
			continue
		}
		l.own = append(l.own, s)
		if host := s.Names[0]; s.Missing(now) {
			l.since[host] = now
			if at, ok := before[host]; ok {
				l.since[host] = at
			}
		}
	}
}

// count returns the number of hosts without a certificate; ok is false before the list was read.
func (l *certificateList) count() (missing int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.since), l.known
}

// expiries returns when the certificates of the installation's hosts expire; ok is false before the list was read.
func (l *certificateList) expiries() (all []telemetry.CertificateExpiry, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.own {
		if !s.NotAfter.IsZero() {
			all = append(all, telemetry.CertificateExpiry{Source: s.Source, Name: s.Names[0], NotAfter: s.NotAfter})
		}
	}
	return all, l.known
}

// problems returns the hosts without a certificate for which a request has failed, or which have waited for long.
func (l *certificateList) problems(now time.Time) (all []certs.Status) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.own {
		since, missing := l.since[s.Names[0]]
		if missing && (s.LastError != "" || now.Sub(since) >= certificateWait) {
			all = append(all, s)
		}
	}
	return all
}

// check returns an error if a host has no certificate. Its text is shown to anybody.
func (l *certificateList) check(context.Context) error {
	all := l.problems(time.Now())
	if len(all) == 0 {
		return nil
	}
	more := ""
	if len(all) > 1 {
		more = fmt.Sprintf(" (%d hosts have none)", len(all))
	}
	return errors.New("the host " + all[0].Names[0] + " has no valid certificate: " + all[0].Reason() + more)
}
