package automations

import (
	"context"
	"log/slog"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/templates"
)

// Deps are the dependencies of a [Service].
type Deps struct {
	DB        *db.DB
	Queue     *jobs.Queue
	Emails    *emails.Service
	Templates *templates.Service
	Contacts  *contacts.Service
	Teams     *teams.Service
	Domains   *domains.Service
	Log       *slog.Logger

	// CheckURL returns an error if Call would refuse the URL. The parameter field is the name of the request field that
	// contains the URL.
	CheckURL func(field, url string) (string, error)

	// Call sends a POST request for a team to a URL that a user configured, and returns the response status. All retries
	// of a webhook call have the same id.
	Call func(ctx context.Context, teamID, id, url string, headers map[string]string, body []byte) (status int,
		err error)
}

// Service implements the operations on automations, begins runs, and carries them out. Register the service as a
// listener with the event recorder, after packages emails and contacts.
type Service struct {
	p        Deps
	versions versions
}

// New returns the service. New fails if a dependency is missing.
func New(p Deps) (*Service, error) {
	if err := fault.Complete(p); err != nil {
		return nil, err
	}
	return &Service{p: p}, nil
}
