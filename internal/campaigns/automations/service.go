package automations

import (
	"context"
	"log/slog"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/templates"
)

// Parts are the dependencies of a Service.
type Parts struct {
	DB        *db.DB
	Queue     *jobs.Queue
	Emails    *emails.Service
	Templates *templates.Service
	Contacts  *contacts.Service
	Teams     *teams.Service
	Log       *slog.Logger // nil logs nothing

	// CheckURL refuses a URL of a field that Call does not call.
	CheckURL func(field, url string) (string, error)

	// Call posts a body for a team to an address that a user gave, and returns the status of the answer. The id is the
	// same in all tries.
	Call func(ctx context.Context, teamID, id, url string, headers map[string]string, body []byte) (status int,
		err error)
}

// Service implements the operations on automations, begins runs, and carries them out. It must be registered as a
// listener of the recorder after packages emails and contacts.
type Service struct {
	p        Parts
	versions versions
}

// New returns the service.
func New(p Parts) *Service {
	if p.Log == nil {
		p.Log = slog.New(slog.DiscardHandler)
	}
	return &Service{p: p}
}
