package emails

import (
	"context"
	"log/slog"

	"github.com/postrider/postrider/internal/accounts/quotas"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/platform/blob"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/fairshare"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/keyring"
	"github.com/postrider/postrider/internal/platform/netguard"
	"github.com/postrider/postrider/internal/sending/content"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/suppressions"
	"github.com/postrider/postrider/internal/sending/templates"
)

// Config is the part of the configuration that concerns emails.
type Config struct {
	MaxSize            int64    // octets of a whole message, attachments encoded
	TestDomainsRefused []string // recipients there are refused
	PublicURL          string   // prefix of links to downloads and shared emails, without a slash at the end
	TrackingURL        string   // prefix of tracked links; "" is https:// and the domain's tracking host
}

// Service implements the operations on emails.
type Service struct {
	c            Config
	d            *db.DB
	q            *jobs.Queue
	recorder     *events.Recorder
	blobs        *blob.Store
	keys         *keyring.Keyring
	guard        *netguard.Guard
	domains      *domains.Service
	suppressions *suppressions.Service
	teams        *teams.Service
	contents     *content.Service
	contacts     *contacts.Service
	templates    *templates.Service
	volume       *quotas.Service
	running      running
	fetching     *fairshare.Pool // octets
	log          *slog.Logger

	// Budget counts emails of an actor with limits, in the transaction that accepts them, and refuses those beyond;
	// recipients is how many addresses each goes to. It is asked for such actors alone. Set it before use; nil refuses
	// nothing.
	Budget func(ctx context.Context, tx *db.Tx, by teams.Actor, recipients []int) error
	// Affords returns for each of some emails nil, or the fault for which Budget would refuse it beside those before it
	// that it would not. It counts nothing; set it with Budget.
	Affords func(ctx context.Context, by teams.Actor, recipients []int) ([]error, error)
}

// Parts are the dependencies of a Service.
type Parts struct {
	DB           *db.DB
	Queue        *jobs.Queue
	Recorder     *events.Recorder
	Blobs        *blob.Store
	Keys         *keyring.Keyring
	Guard        *netguard.Guard
	Domains      *domains.Service
	Suppressions *suppressions.Service
	Teams        *teams.Service
	Contents     *content.Service   // nil makes one
	Contacts     *contacts.Service  // nil makes one
	Templates    *templates.Service // nil makes one
	Volume       *quotas.Service    // nil makes one
	Log          *slog.Logger       // nil logs nothing
}

// New returns the service.
func New(c Config, p Parts) *Service {
	if p.Log == nil {
		p.Log = slog.New(slog.DiscardHandler)
	}
	if c.TestDomainsRefused == nil {
		c.TestDomainsRefused = []string{"example.com", "test.com"}
	}
	if p.Contents == nil {
		p.Contents = content.New(p.DB)
	}
	if p.Contacts == nil {
		p.Contacts = contacts.New(p.DB, p.Recorder, p.Keys)
	}
	if p.Templates == nil {
		p.Templates = templates.New(p.DB, p.Contents, c.MaxSize)
	}
	if p.Volume == nil {
		p.Volume = quotas.New(p.DB)
	}
	return &Service{c: c, d: p.DB, q: p.Queue, recorder: p.Recorder, blobs: p.Blobs, keys: p.Keys, guard: p.Guard,
		domains: p.Domains, suppressions: p.Suppressions, teams: p.Teams, contents: p.Contents, contacts: p.Contacts,
		templates: p.Templates, volume: p.Volume, running: running{m: map[string]bool{}}, fetching: fairshare.New(fetchMemory, 1), log: p.Log}
}
