// Package dmarcreports counts received messages by the results of their authentication, and sends DMARC aggregate
// reports (RFC 9990) about them to the domains that ask for reports.
//
// # Life of a report
//
// [Service.Count] counts a message in memory, by UTC day, policy domain, address of the client, results and domains.
// Each minute, [Service.Run] adds the counts to the database, which sums the counts of all nodes. After midnight,
// [Service.Send] looks up whether each target accepts reports about the domain, sends the report, and deletes its rows.
// The reports are spread over four hours.
//
// # Invariants
//
// Package dailyreports ensures that a domain gets at most one report for a day at each of its targets.
//
// No report is sent about a day on which the installation received fewer than [minMessages] messages. A report names no
// recipient and no recipient's domain. A target to which three reports bounced gets none for [restFor].
//
// # Failures
//
// While the database is unavailable, counts stay in memory, up to [maxPending] rows. A killed node loses the counts of
// about a minute. If the outcome of a commit is unknown, its counts may be lost but are never doubled.
//
// # Out of scope
//
// The package does not authenticate messages, and reads no reports that others send. Bounces that arrive later, as
// emails, do not count.
package dmarcreports

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/authres"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/dailyreports"
)

const (
	workers  = 8                    // reports that are sent at the same time
	keepDays = 3 * dailyreports.Day // how long the numbers of messages are kept

	// minMessages is the number of messages that a day needs for reports. Reports about fewer messages would say more
	// about their recipients than about their senders.
	minMessages = 100

	maxBounces = 3
	restFor    = 90 * dailyreports.Day
)

// Config configures a Service.
type Config struct {
	// Off means that messages are not counted and no reports are sent. Reports that no other node sends are dropped.
	Off       bool
	From      message.Address // sender of reports; its domain is the submitter
	Generator string          // name and version of the program

	Now func() time.Time // nil means the database's clock; for tests
}

// Deps holds what a Service uses.
type Deps struct {
	DB  *db.DB
	DNS resolve.Resolver
	Log *slog.Logger
	// Mail signs an email by the key of the sender's domain and sends it at once. Its errors may wrap
	// dailyreports.ErrUnknown or dailyreports.ErrBounced.
	Mail func(ctx context.Context, from, to string, raw []byte) error
}

// Service counts messages and sends reports. It is safe for concurrent use.
type Service struct {
	c      Config
	p      Deps
	sender dailyreports.Sender
	counts *counts
}

// New returns a service.
func New(c Config, p Deps) (*Service, error) {
	if err := fault.Complete(p); err != nil {
		return nil, fmt.Errorf("new service for DMARC reports: %w", err)
	}
	if c.Now == nil {
		c.Now = p.DB.Now
	}
	s := &Service{c: c, p: p, counts: newCounts()}
	s.sender = dailyreports.Sender{Kind: "DMARC", Table: table, Workers: workers, Off: c.Off, DB: p.DB, Log: p.Log,
		Now: c.Now, Targets: s.targets, Prepare: s.prepare, Rests: s.rests, Bounced: s.bounced}
	return s, nil
}

// Count counts a received message. The facts are nil if DMARC does not apply to the message. Count uses no I/O.
func (s *Service) Count(facts *authres.Facts) {
	if !s.c.Off {
		s.counts.add(dailyreports.DayOf(s.c.Now()), facts)
	}
}

// Run adds the counts to the database each minute until ctx ends. After the last message, call Flush.
func (s *Service) Run(ctx context.Context) error {
	return s.counts.Run(ctx, s.Flush, func(err error) {
		s.p.Log.Warn("counts of received messages cannot be stored; they are stored later", "error", err)
	})
}

// Send sends the reports that are due. One node at a time should call it.
func (s *Service) Send(ctx context.Context) error {
	if !s.c.Off {
		if err := s.prune(ctx); err != nil {
			return err
		}
	}
	return s.sender.Send(ctx)
}
