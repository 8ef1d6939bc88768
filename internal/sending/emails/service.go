package emails

import (
	"context"
	"log/slog"
	"time"

	"github.com/postrider/postrider/internal/accounts/quotas"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/blob"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/fairshare"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/keyring"
	"github.com/postrider/postrider/internal/platform/netguard"
	"github.com/postrider/postrider/internal/sending/content"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/search"
	"github.com/postrider/postrider/internal/sending/suppressions"
	"github.com/postrider/postrider/internal/sending/templates"
)

// Config is the configuration for package emails.
type Config struct {
	MaxSize            int64    // maximum size of a message in bytes, including encoded attachments
	TestDomainsRefused []string // domains to which no email may be sent
	PublicURL          string   // prefix of links to downloads and shared emails, without a trailing slash
	TrackingURL        string   // prefix of tracked links; "" means https:// and the domain's tracking host
	FeedbackSender     string   // the operator's identifier in Feedback-ID; "" means that no message has this field
}

// Service implements the operations on emails.
type Service struct {
	Deps
	Index *search.Index // for searches of sent emails

	c        Config
	running  running
	feedback feedbackIDs
	fetching *fairshare.Pool // bytes
	log      *slog.Logger
}

// Deps are the dependencies of a Service.
type Deps struct {
	DB           *db.DB
	Queue        *jobs.Queue
	Recorder     *events.Recorder
	Blobs        *blob.Store
	Keys         *keyring.Keyring
	Guard        *netguard.Guard
	Domains      *domains.Service
	Suppressions *suppressions.Service
	Teams        *teams.Service
	Contents     *content.Service
	Contacts     *contacts.Service
	Templates    *templates.Service
	Quotas       *quotas.Service
	Log          *slog.Logger
	// OnAccept is called after emails were accepted, with their ids. The source is api, smtp, dashboard, broadcast,
	// automation or system.
	OnAccept func(source string, ids []string) `deps:"optional"`
	// ConsumeLimit counts emails against the limits of an OAuth grant, in the transaction that accepts them.
	// ConsumeLimit returns a fault if a limit is exceeded. The slice recipients holds the number of addresses in each
	// email. ConsumeLimit is called only for actors with limits.
	ConsumeLimit func(ctx context.Context, tx *db.Tx, by teams.Actor, recipients []int) error
	// ConsumeDueLimit counts the n recipients of a scheduled email that is due against the daily limit of the grant
	// that scheduled it, unless they were counted when the email was accepted. ConsumeDueLimit returns a fault if the
	// limit is exceeded.
	ConsumeDueLimit func(ctx context.Context, tx *db.Tx, teamID, grantID string, n int, accepted time.Time) error
	// IsApproved reports whether a person approved an email before it was accepted.
	IsApproved func(ctx context.Context, teamID, emailID string) (bool, error)
	// For each email, CheckLimit returns the fault that ConsumeLimit would return, or nil. For this purpose, emails
	// earlier in the list count as accepted. CheckLimit stores nothing.
	CheckLimit func(ctx context.Context, by teams.Actor, recipients []int) ([]error, error)
}

// New returns the service. New fails if a dependency is missing.
func New(c Config, d Deps) (*Service, error) {
	if err := fault.Complete(d); err != nil {
		return nil, err
	}
	if c.TestDomainsRefused == nil {
		c.TestDomainsRefused = []string{"example.com", "test.com"}
	}
	s := &Service{Deps: d, c: c, running: running{m: map[string]bool{}}, fetching: fairshare.New(fetchMemory, 1),
		log: d.Log}
	s.Index = search.NewIndex(d.DB, d.Log, s.messagesBetween)
	return s, nil
}
