// Package tlsreports counts the TLS sessions of deliveries and sends TLS reports (RFC 8460) about them to the domains
// that ask for reports.
//
// # Life of a report
//
// [Service.Count] counts a session in memory, by UTC day, domain, policy, result, mail host and own address. Each
// minute, [Service.Run] adds the counts to the database, where those of all nodes meet. After midnight, [Service.Send]
// looks up the record of each domain, sends the report, and deletes its rows. The reports are spread over four hours.
//
// # Invariants
//
// A domain gets at most one report for a day at each of its targets. A target is marked in the database before a try.
// If the node is killed during the try, no other node tries again, because the target may have the report. No counts
// are added to a day after its first report may have been sent.
//
// A report has at most [maxDetails] failures; further ones are added up by policy and result. A node counts at most
// [maxPolicies] policies and [maxRows] combinations for a domain and day apart, so that a domain whose records change
// all the time needs a limited number of rows.
//
// # Failures
//
// A try that fails is repeated for up to 24 hours; then the report is dropped and a line is logged. While the database
// is away, counts stay in memory, up to [maxPending] combinations. A killed node loses the counts of about a minute.
// The outcome of a commit may be unknown; then its counts may be lost but are never doubled.
//
// # Out of scope
//
// The package does not decide which policy applies to a session, and reads no reports that others send.
package tlsreports

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/netguard"
)

const (
	day = 24 * time.Hour
	// Counts of a day are stored until lateFor after its end, and its reports are sent from settleFor after its end.
	// The difference exceeds the time of a transaction.
	lateFor   = 9 * time.Minute
	settleFor = 15 * time.Minute
	// spread is the time after midnight within which all first tries begin (RFC 8460 section 4.1).
	spread    = 4 * time.Hour
	retryFor  = 24 * time.Hour // RFC 8460 section 5.5
	postTime  = time.Minute    // of a request with a report
	flushTime = time.Minute    // between two additions to the database
)

// retryAfter are the times between tries; the last one repeats.
var retryAfter = []time.Duration{15 * time.Minute, time.Hour, 3 * time.Hour, 6 * time.Hour}

// ErrUnknown means that an email may have been sent although sending failed. It is not sent again.
var ErrUnknown = errors.New("the email may have been sent")

// Config configures a Service.
type Config struct {
	// Off means that sessions are not counted and no reports are sent. Reports that no other node sends are dropped.
	Off  bool
	From message.Address // sender of reports; its domain is the submitter

	// The following fields are for tests.
	RootCAs *x509.CertPool   // verify the web servers' certificates; nil means the system's
	Port    int              // of all web servers; 0 means that of the URL
	Now     func() time.Time // nil means the database's clock
}

// Deps holds what a Service uses.
type Deps struct {
	DB    *db.DB
	DNS   resolve.Resolver
	Guard *netguard.Guard
	Log   *slog.Logger
	// Mail signs an email by the key of the sender's domain and sends it at once, whatever the policies of the
	// recipient's domain demand. If the email may have been sent in spite of an error, the error wraps ErrUnknown.
	Mail func(ctx context.Context, from, to string, raw []byte) error
}

// Service counts sessions and sends reports. It is safe for concurrent use.
type Service struct {
	c      Config
	p      Deps
	client *http.Client
	counts *counts
}

// New returns a service.
func New(c Config, p Deps) (*Service, error) {
	if err := fault.Complete(p); err != nil {
		return nil, fmt.Errorf("new service for TLS reports: %w", err)
	}
	if c.Now == nil {
		c.Now = p.DB.Now
	}
	s := &Service{c: c, p: p, counts: newCounts()}
	s.client = s.newClient()
	return s, nil
}

// Run adds the counts to the database each minute until ctx ends. After the last session, call Flush.
func (s *Service) Run(ctx context.Context) error {
	tick := time.NewTicker(flushTime)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		case <-s.counts.full:
		}
		if err := s.Flush(ctx); err != nil && ctx.Err() == nil {
			s.p.Log.Warn("counts of TLS sessions cannot be stored; they are stored later", "error", err)
		}
	}
}
