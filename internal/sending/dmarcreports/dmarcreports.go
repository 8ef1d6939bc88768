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
// A domain gets at most one report for a day at each of its targets. A target is marked in the database before a try.
// If the node is killed during the try, no other node tries again, because the target may have the report. No counts
// are added to a day after its first report may have been sent.
//
// No report is sent about a day on which the installation received fewer than [minMessages] messages. A report names no
// recipient and no recipient's domain. A target to which three reports bounced gets none for [restFor].
//
// # Failures
//
// A try that fails is repeated for up to 24 hours. After that, the report is dropped and a line is logged. While the
// database is unavailable, counts stay in memory, up to [maxPending] rows. A killed node loses the counts of about a
// minute. If the outcome of a commit is unknown, its counts may be lost but are never doubled.
//
// # Out of scope
//
// The package does not authenticate messages, and reads no reports that others send. Bounces that arrive later, as
// emails, do not count.
package dmarcreports

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/authres"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/db"
)

const (
	day = 24 * time.Hour
	// Counts of a day are stored until lateFor after its end, and its reports are sent from settleFor after its end.
	// The difference exceeds the time of a transaction.
	lateFor   = 9 * time.Minute
	settleFor = 15 * time.Minute
	spread    = 4 * time.Hour // all first tries begin within this time after midnight
	retryFor  = 24 * time.Hour
	flushTime = time.Minute // between two additions to the database
	keepDays  = 3 * day     // how long the numbers of messages are kept

	// minMessages is the number of messages that a day needs for reports. Reports about fewer messages would say more
	// about their recipients than about their senders.
	minMessages = 100

	maxBounces = 3
	restFor    = 90 * day
)

// retryAfter are the times between tries; the last one repeats.
var retryAfter = []time.Duration{15 * time.Minute, time.Hour, 3 * time.Hour, 6 * time.Hour}

// These are the errors of Deps.Mail that have a meaning; compare with errors.Is.
var (
	// ErrUnknown means that an email may have been sent although sending failed. It is not sent again.
	ErrUnknown = errors.New("the email may have been sent")
	// ErrBounced means that the target can never receive the email: its mail host refused the email permanently, or its
	// domain accepts no mail.
	ErrBounced = errors.New("the mail host refused the email")
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
	// Mail signs an email by the key of the sender's domain and sends it at once. Its errors may wrap ErrUnknown or
	// ErrBounced.
	Mail func(ctx context.Context, from, to string, raw []byte) error
}

// Service counts messages and sends reports. It is safe for concurrent use.
type Service struct {
	c      Config
	p      Deps
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
	return &Service{c: c, p: p, counts: newCounts()}, nil
}

// Count counts a received message. The facts are nil if DMARC does not apply to the message. Count uses no I/O.
func (s *Service) Count(facts *authres.Facts) {
	if !s.c.Off {
		s.counts.add(s.c.Now().UTC().Truncate(day).UnixMicro(), facts)
	}
}

// Run adds the counts to the database each minute until ctx ends. After the last message, call Flush.
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
			s.p.Log.Warn("counts of received messages cannot be stored; they are stored later", "error", err)
		}
	}
}
