package webhooks

import (
	"context"
	"net/http"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/platform/signing"
)

const sealPurpose = "webhook"

// Sealed lists the columns with encrypted secrets.
var Sealed = signing.Columns("webhooks", sealPurpose)

// Service implements the operations on webhook endpoints and their messages. Register the Service as a listener of the
// event recorder, and its job kinds with the job runner.
type Service struct {
	c         Config
	p         Deps
	endpoints endpointCache
	health    health
	recent    entryCounter
	raises    raises
	client    *http.Client
}

// New returns the webhooks service. New fails if a required dependency is missing.
func New(c Config, p Deps) (*Service, error) {
	if err := fault.Complete(p); err != nil {
		return nil, err
	}
	return newService(c, p), nil
}

// newService is like New but does not check the dependencies, for tests that need only a few of them.
func newService(c Config, p Deps) *Service {
	if c.Workers == 0 {
		c.Workers = 1024
	}
	if c.EndpointMax == 0 {
		c.EndpointMax = endpointMax
	}
	if c.TeamMax == 0 {
		c.TeamMax = teamMax
	}
	if c.Timeout == 0 {
		c.Timeout = timeout
	}
	s := &Service{c: c, p: p, client: newClient(p.Guard, c.Timeout)}
	s.endpoints.start(p.DB)
	s.health.timeout = c.Timeout
	return s
}

// secrets returns the sealer of endpoints' signing secrets.
func (s *Service) secrets() signing.Sealer {
	return signing.Sealer{Keys: s.p.Keys, Purpose: sealPurpose}
}

// Create adds an endpoint. Only the results of Create and [Service.Get] contain the secret.
func (s *Service) Create(ctx context.Context, teamID, url string, names []string) (Endpoint, error) {
	return s.create(ctx, teamID, url, names, Enabled)
}

// CreateDisabled is like Create, but the endpoint receives nothing until Update enables it.
func (s *Service) CreateDisabled(ctx context.Context, teamID, url string, names []string) (Endpoint, error) {
	return s.create(ctx, teamID, url, names, Disabled)
}

// Check returns the URL in the form in which Create stores it, or the fault that Create would return for the URL and the
// event types.
func (s *Service) Check(url string, names []string) (string, error) {
	url, err := s.CheckURL("endpoint", url)
	if err == nil {
		_, err = checkEvents(names)
	}
	return url, err
}

func (s *Service) create(ctx context.Context, teamID, url string, names []string, status Status) (Endpoint, error) {
	if url == "" {
		return Endpoint{}, fault.MissingField("endpoint")
	}
	if names == nil {
		return Endpoint{}, fault.MissingField("events")
	}
	e := Endpoint{ID: id.New(), TeamID: teamID, Status: status}
	var err error
	if e.URL, err = s.CheckURL("endpoint", url); err != nil {
		return e, err
	}
	if e.Events, err = checkEvents(names); err != nil {
		return e, err
	}
	if e.Secret, e.secret.Sealed, err = s.secrets().New(e.ID); err != nil {
		return e, err
	}
	return e, s.p.DB.Update(ctx, func(tx *db.Tx) error {
		n, err := countEndpoints(ctx, tx.Reader, teamID)
		if err != nil {
			return err
		}
		if n >= maxPerTeam {
			return fault.Forbiddenf("endpoint", "A team may have %d webhooks. Delete one that is no longer needed.", maxPerTeam)
		}
		e.CreatedAt = tx.Now()
		insertEndpoint(ctx, tx, &e)
		if status == Disabled {
			e.DisabledAt = tx.Now()
			saveEndpoint(ctx, tx, &e)
		}
		audit.Target(ctx, e.ID)
		s.endpoints.changed(tx, teamID)
		return nil
	})
}

// Get returns an endpoint with its secret.
func (s *Service) Get(ctx context.Context, teamID, endpointID string) (Endpoint, error) {
	e, err := getEndpoint(ctx, s.p.DB.Reader, teamID, endpointID)
	if err != nil {
		return e, err
	}
	e.Secret, err = s.secrets().Show(e.ID, &e.secret)
	return e, err
}

// List returns a page of endpoints, newest first, without their secrets.
func (s *Service) List(ctx context.Context, teamID string, p page.Page) ([]Endpoint, bool, error) {
	return listEndpoints(ctx, s.p.DB.Reader, teamID, p)
}

// Change describes a change to an endpoint; nil fields leave the endpoint's values unchanged.
type Change struct {
	URL    *string
	Events []string
	Status *string
}

// Update changes an endpoint. Enabling an endpoint clears its record of failures.
func (s *Service) Update(ctx context.Context, teamID, endpointID string, c Change) error {
	var url string
	var err error
	if c.URL != nil {
		if url, err = s.CheckURL("endpoint", *c.URL); err != nil {
			return err
		}
	}
	var types string
	if c.Events != nil {
		all, err := checkEvents(c.Events)
		if err != nil {
			return err
		}
		types = join(all, ",")
	}
	if c.Status != nil && *c.Status != string(Enabled) && *c.Status != string(Disabled) {
		return fault.Invalidf("status", "The `status` field must be `enabled` or `disabled`.")
	}
	return s.p.DB.Update(ctx, func(tx *db.Tx) error {
		e, err := lockEndpoint(ctx, tx, teamID, endpointID)
		if err != nil {
			return err
		}
		if c.URL != nil {
			e.URL = url
		}
		if c.Events != nil {
			e.Events = splitTypes(types)
		}
		if c.Status != nil && Status(*c.Status) != e.Status {
			e.Status = Status(*c.Status)
			e.DisabledReason, e.DisabledAt, e.FailingSince, e.warned = "", db.Time(0), db.Time(0), false
			if e.Status == Disabled {
				e.DisabledAt = tx.Now()
			}
		}
		saveEndpoint(ctx, tx, &e)
		s.endpoints.changed(tx, teamID)
		tx.AfterCommit(func() { s.health.forget(e.ID) })
		return nil
	})
}

// Delete deletes an endpoint. Messages that wait for the endpoint are not delivered.
func (s *Service) Delete(ctx context.Context, teamID, endpointID string) error {
	return s.p.DB.Update(ctx, func(tx *db.Tx) error {
		e, err := lockEndpoint(ctx, tx, teamID, endpointID)
		if err != nil {
			return err
		}
		e.Status, e.DisabledAt = deleted, tx.Now()
		saveEndpoint(ctx, tx, &e)
		s.endpoints.changed(tx, teamID)
		tx.AfterCommit(func() { s.health.forget(e.ID) })
		return nil
	})
}

// Rotate replaces an endpoint's secret and returns the new secret. For [signing.Overlap], messages are also signed with
// the previous secret, but not with older secrets.
func (s *Service) Rotate(ctx context.Context, teamID, endpointID string) (secret string, err error) {
	secret, sealed, err := s.secrets().New(endpointID)
	if err != nil {
		return "", err
	}
	return secret, s.p.DB.Update(ctx, func(tx *db.Tx) error {
		e, err := lockEndpoint(ctx, tx, teamID, endpointID)
		if err != nil {
			return err
		}
		e.secret.Replace(sealed, tx.Now())
		saveEndpoint(ctx, tx, &e)
		s.endpoints.changed(tx, teamID)
		return nil
	})
}
