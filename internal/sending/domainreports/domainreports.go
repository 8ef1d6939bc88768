// Package domainreports takes the reports that other mail systems send about teams' domains: DMARC aggregate reports
// (RFC 9990, RFC 7489) and TLS reports (RFC 8460). It stores their counts and builds the views of them.
//
// # Way of a report
//
// Each domain has one address for reports, whose local part is a random token. Package receiving asks [Service.Find]
// whether it accepts an address, gives the message to [Service.Read], and calls [Service.Store] in the transaction
// after which it answers 250. Read finds the report by the first bytes of the parts, because names and media types are
// often wrong. Store adds the counts to the rows of the day. The file itself stays in a blob for 30 days.
//
// # Invariants
//
//   - A report is proven if its message is authenticated for the domain in From, by DMARC or an aligned signature for
//     DMARC reports, and by an aligned signature for TLS reports, and if it names this domain as its reporter. Reports
//     without proof are kept apart: they are listed and added up on their own, and change no findings.
//   - A header field that decides what a report is must occur once, and the signature must cover it. This holds for From,
//     for TLS-Report-Domain if the report itself is not about the domain, and for the fields that name the reporter.
//     Large reporters do not sign Content-Type. Without that, the body must be the file itself, or begin with the
//     boundary of a part, because a forger can then write no other Content-Type above the mail of somebody else.
//   - Any domain can prove a forged report. Alarms, notices, readiness and the advice to enforce MTA-STS therefore need
//     a well-known reporter, or two independent ones.
//   - A report counts once. Its key is the domain in From and the id in the report; a repetition only increases a
//     number. If the periods of two reports of one reporter overlap, the second one is listed but not added up.
//   - All counts of a report are stored. Only details are dropped: at most [maxReportRows] combinations of a report,
//     and [maxDayRows] of a domain and day, keep them. The rest is added up by result.
//   - A domain stores at most [maxDayReports] reports a day, and [maxDayUnproven] without proof or unreadable. One
//     reporter can use only a part of that ([maxReporterReports]). Further reports are counted as dropped. Repetitions
//     without proof count too. A file that is stored is recognized by its hash and not read again.
//   - The files of a message have at most [messageBytes] and [messageRows] when they are unpacked. Those without
//     authentication have much less.
//
// # Failures
//
// A report that cannot be read is stored with the reason, and its message is accepted, so that its sender does not try
// again for ever. While the database is away, the client must try again; a report whose commit is uncertain then counts
// once. If DNS does not answer, the views show sources as unknown that they otherwise name, and say so. A source of
// this installation is recognized when the report arrives, or else when it is shown.
//
// # Out of scope
//
// The package sends no reports (see package tlsreports), publishes no records, and does not authenticate messages.
package domainreports

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/blob"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/domains"
)

const (
	oneDay = 24 * time.Hour

	maxReports    = 10     // reports in one message
	maxTotal      = 1e12   // messages or sessions of one report, so that no sum overflows
	maxKeys       = 20_000 // combinations of one report in memory
	maxReportRows = 2000
	rawFor        = 30 * oneDay
	maxAge        = 60 * oneDay // of a reported period
	maxPeriod     = 32 * oneDay
	readers       = 4 // reports that are read at the same time
	noticeEvery   = 7 * oneDay
	defectTime    = 2 * oneDay // in which reports confirm each other

	// retentionDefault is how long counts are kept.
	retentionDefault = 90 * oneDay
)

// Config configures a Service.
type Config struct {
	// HostOf returns the host of the addresses for reports about domains of a region.
	HostOf func(region string) string
	// SPFHosts are the names whose SPF records list the addresses from which this installation sends.
	SPFHosts []string
	// OwnHosts are further names, from whose addresses this installation sends.
	OwnHosts  []string
	Retention time.Duration // of counts; 0 means 90 days
	// TrustRecords says that the advised records count as published without a look-up, as in development.
	TrustRecords bool

	Now func() time.Time // for tests; nil means the database's clock
}

// Deps holds what a Service uses.
type Deps struct {
	DB      *db.DB
	Blobs   *blob.Store
	DNS     resolve.Resolver
	Domains *domains.Service
	Log     *slog.Logger
	// Notify enqueues an email to the owner of a team in the transaction tx.
	Notify func(ctx context.Context, tx *db.Tx, teamID, subject, text string) error
}

// Service takes reports and builds views. It is safe for concurrent use.
type Service struct {
	c       Config
	p       Deps
	reading *semaphore.Weighted

	mu    sync.Mutex
	ours  networks // addresses of this installation
	until time.Time
}

// New returns a service.
func New(c Config, p Deps) (*Service, error) {
	if err := fault.Complete(p); err != nil {
		return nil, fmt.Errorf("new service for reports about domains: %w", err)
	}
	if c.Now == nil {
		c.Now = p.DB.Now
	}
	if c.Retention == 0 {
		c.Retention = retentionDefault
	}
	return &Service{c: c, p: p, reading: semaphore.NewWeighted(readers)}, nil
}

// Kind is the kind of a report.
type Kind string

// These are the kinds of reports. A message in which no report was found has the kind "".
const (
	DMARC Kind = "dmarc"
	TLS   Kind = "tls"
)

// State is what became of a report.
type State string

// These are the states of reports.
const (
	Counted     State = "counted"
	Overlapping State = "overlapping" // listed, but not added up
	Unreadable  State = "unreadable"
	Discarded   State = "discarded" // about another domain, or it contradicts itself
)

// Report is a received report without its rows.
type Report struct {
	ID           string
	Kind         Kind
	State        State
	Reason       string // why the report does not count
	Proven       bool   // if not, Reason says what an authenticated report lacks
	Reporter     string // domain of the sender
	Organization string // as the report says
	ReportID     string
	PolicyDomain string
	Begin, End   time.Time // zero if the report could not be read
	Messages     int64     // messages of a DMARC report, or sessions of a TLS report
	Failed       int64     // of them, those that passed neither DKIM nor SPF, or the failed sessions
	Rows         int64     // in the report
	Repeats      int64     // how many times the report came again
	Size         int64     // bytes of the file
	HasFile      bool
	ReceivedAt   time.Time

	ownMessages, ownFailed int64 // from addresses of this installation
	dedupe, blobKey        string
	fingerprint            string // of the file and its sender; "" if a repetition is read again
}

func today(t time.Time) int64 { return db.Micros(t.UTC().Truncate(oneDay)) }

// dayOf returns the day to which the counts of a period belong: that of its middle.
func dayOf(begin, end time.Time) int64 { return today(begin.Add(end.Sub(begin) / 2)) }
