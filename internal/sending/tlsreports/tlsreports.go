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
// Package dailyreports ensures that a domain gets at most one report for a day at each of its targets.
//
// A report has at most [maxDetails] failures; further ones are added up by policy and result. A node counts at most
// [maxPolicies] policies and [maxRows] combinations for a domain and day apart, so that a domain whose records change
// all the time needs a limited number of rows.
//
// # Failures
//
// While the database is unavailable, counts stay in memory, up to [maxPending] combinations. A killed node loses the
// counts of about a minute. If the outcome of a commit is unknown, its counts may be lost but are never doubled.
//
// # Out of scope
//
// The package does not decide which policy applies to a session, and reads no reports that others send.
package tlsreports

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/netguard"
	"github.com/postrider/postrider/internal/sending/dailyreports"
)

const (
	workers  = 16          // reports that are sent at the same time
	postTime = time.Minute // of a request with a report
)

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
	// recipient's domain demand. If the email may have been sent in spite of an error, the error wraps
	// dailyreports.ErrUnknown.
	Mail func(ctx context.Context, from, to string, raw []byte) error
}

// Service counts sessions and sends reports. It is safe for concurrent use.
type Service struct {
	c      Config
	p      Deps
	client *http.Client
	sender dailyreports.Sender
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
	s.sender = dailyreports.Sender{Kind: "TLS", Table: table, Workers: workers, Off: c.Off, DB: p.DB, Log: p.Log,
		Now: c.Now, Targets: s.targets, Prepare: s.prepare}
	return s, nil
}

// Run adds the counts to the database each minute until ctx ends. After the last session, call Flush.
func (s *Service) Run(ctx context.Context) error {
	return s.counts.Run(ctx, s.Flush, func(err error) {
		s.p.Log.Warn("counts of TLS sessions cannot be stored; they are stored later", "error", err)
	})
}

// Send sends the reports that are due. One node at a time should call it.
func (s *Service) Send(ctx context.Context) error { return s.sender.Send(ctx) }
