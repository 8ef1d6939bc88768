package automations

import (
	"context"
	"log/slog"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/templates"
)

// Deps are the dependencies of the package.
type Deps struct {
	DB        *db.DB
	Queue     *jobs.Queue
	Emails    *emails.Service
	Templates *templates.Service
	Contacts  *contacts.Service
	Teams     *teams.Service
	Log       *slog.Logger

	// CheckURL returns an error if Call would not call a URL. field is the field of the request that has the URL.
	CheckURL func(field, url string) (string, error)

	// Call posts a body for a team to a URL that a user gave, and returns the status of the response. The id is the
	// same in all tries of a call.
	Call func(ctx context.Context, teamID, id, url string, headers map[string]string, body []byte) (status int,
		err error)
}

// Service implements the operations on automations, begins runs, and carries them out. Register it as a listener of the
// recorder after packages emails and contacts.
type Service struct {
	p        Deps
	versions versions
}

// New returns the service. It fails if a dependency is missing.
func New(p Deps) (*Service, error) {
	if err := fault.Complete(p); err != nil {
		return nil, err
	}
	return &Service{p: p}, nil
}
