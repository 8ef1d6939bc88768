package suppressions

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/page"
)

// Service implements the operations on suppressions.
type Service struct {
	d        *db.DB
	recorder *events.Recorder
}

// New returns the service. The caller must also register the service as a listener with the event recorder.
func New(d *db.DB, recorder *events.Recorder) *Service { return &Service{d, recorder} }

// Add adds manual suppressions for the given addresses and returns their entries in the same order. Addresses that are
// already suppressed keep their existing entries.
func (s *Service) Add(ctx context.Context, teamID string, addresses []string) ([]Suppression, error) {
	keys := make([]string, len(addresses))
	for i, text := range addresses {
		key, err := normal("email", text)
		if err != nil {
			return nil, err
		}
		keys[i] = key
	}
	var all []Suppression
	err := s.d.Update(ctx, func(tx *db.Tx) error {
		all = all[:0]
		for _, key := range keys {
			e, err := s.add(ctx, tx, Suppression{TeamID: teamID, Address: key, Origin: Manual})
			if err != nil {
				return err
			}
			all = append(all, e)
		}
		auditEntries(ctx, all)
		return nil
	})
	return all, err
}

// addTries is the maximum number of times that add tries to insert an entry or read the existing one.
const addTries = 10

// add returns the suppression entry for an address, and inserts it if it does not exist. On PostgreSQL, an existing
// entry may block the insert but be deleted by another transaction before add reads it. If the existing entry is
// deleted before add reads it, add tries again.
func (s *Service) add(ctx context.Context, tx *db.Tx, n Suppression) (Suppression, error) {
	for range addTries {
		n.ID, n.CreatedAt = id.At(tx.Now()), tx.Now()
		added, err := insert(ctx, tx, &n)
		if err != nil {
			return n, fmt.Errorf("insert a suppression: %w", err)
		}
		if added {
			return n, s.recorder.Record(ctx, tx, events.Event{TeamID: n.TeamID, Type: events.SuppressionAdded, Data: n})
		}
		listed, err := byAddress(ctx, tx.Reader, n.TeamID, n.Address)
		if fault.KindOf(err) != fault.NotFound {
			return listed, err
		}
	}
	return n, fmt.Errorf("add a suppression: others added and removed the address %d times during the request",
		addTries)
}

// normal parses an address and returns the form in which it is stored, in lower case.
func normal(field, text string) (string, error) {
	if text == "" {
		return "", fault.MissingField(field)
	}
	a, err := message.ParseAddress(text)
	if err != nil {
		return "", fault.Invalidf(field, "Invalid `%s` field: %s. Use `email@example.com`.", field,
			strings.TrimSuffix(err.Error(), "."))
	}
	return a.Key(), nil
}

// List returns a page of the team's suppressions, newest first. An empty origin means all origins.
func (s *Service) List(ctx context.Context, teamID string, origin Origin, p page.Page) ([]Suppression, bool, error) {
	if err := origin.check(); err != nil {
		return nil, false, err
	}
	return list(ctx, s.d.Reader, teamID, origin, p)
}

const batchRows = 2000 // maximum number of entries that one call to Batch returns

// Batch returns up to 2,000 of the team's suppressions, newest first, starting after the given cursor. An empty origin
// means all origins. The second result is the cursor of the next batch, or "" after the last batch.
func (s *Service) Batch(ctx context.Context, teamID string, origin Origin, after string) (some []Suppression,
	next string, err error) {
	if err := origin.check(); err != nil {
		return nil, "", err
	}
	return listBatch(ctx, s.d.Reader, teamID, origin, after)
}

func (o Origin) check() error {
	switch o {
	case "", Bounce, Complaint, Manual:
		return nil
	}
	return fault.Invalidf("origin", "The `origin` parameter must be `bounce`, `complaint` or `manual`.")
}

// Get returns the entry with the given id or address.
func (s *Service) Get(ctx context.Context, teamID, idOrAddress string) (Suppression, error) {
	return find(ctx, s.d.Reader, teamID, idOrAddress)
}

func find(ctx context.Context, r db.Reader, teamID, idOrAddress string) (Suppression, error) {
	if id.Valid(idOrAddress) {
		return byID(ctx, r, teamID, strings.ToLower(idOrAddress))
	}
	if !strings.Contains(idOrAddress, "@") {
		return Suppression{}, fault.New(fault.BadID, "suppression",
			"The suppression must be named by a valid UUID or an email address.")
	}
	key, err := normal("suppression", idOrAddress)
	if err != nil {
		return Suppression{}, err
	}
	return byAddress(ctx, r, teamID, key)
}

// Remove deletes the entry with the given id or address.
func (s *Service) Remove(ctx context.Context, teamID, idOrAddress string) (Suppression, error) {
	var gone Suppression
	err := s.d.Update(ctx, func(tx *db.Tx) (err error) {
		gone, err = s.remove(ctx, tx, teamID, idOrAddress)
		audit.Target(ctx, gone.ID)
		return err
	})
	return gone, err
}

func (s *Service) remove(ctx context.Context, tx *db.Tx, teamID, idOrAddress string) (Suppression, error) {
	gone, err := find(ctx, tx.Reader, teamID, idOrAddress)
	if err != nil {
		return gone, err
	}
	if gone, err = deleteByID(ctx, tx, teamID, gone.ID); err != nil {
		return gone, err // another transaction removed the entry and recorded the event
	}
	return gone, s.recorder.Record(ctx, tx, events.Event{TeamID: teamID, Type: events.SuppressionRemoved, Data: gone})
}

// RemoveAll deletes the entries with the given ids or addresses and returns them. RemoveAll ignores unknown ids and
// addresses.
func (s *Service) RemoveAll(ctx context.Context, teamID string, idsOrAddresses []string) ([]Suppression, error) {
	var all []Suppression
	err := s.d.Update(ctx, func(tx *db.Tx) error {
		all = all[:0]
		for _, x := range idsOrAddresses {
			switch gone, err := s.remove(ctx, tx, teamID, x); {
			case err == nil:
				all = append(all, gone)
			case fault.KindOf(err) != fault.NotFound:
				return err
			}
		}
		auditEntries(ctx, all)
		return nil
	})
	return all, err
}

// auditEntries records, in a request's audit log entry, which suppression entries the request changed.
func auditEntries(ctx context.Context, all []Suppression) {
	if len(all) == 1 {
		audit.Target(ctx, all[0].ID)
		return
	}
	audit.Detail(ctx, fmt.Sprintf("%d addresses", len(all)))
}

// Suppressed returns the suppression entries for the given addresses, as a map keyed by address. Addresses without an
// entry are left out. The addresses must be in lower case.
func (s *Service) Suppressed(ctx context.Context, r db.Reader, teamID string,
	addresses []string) (map[string]Suppression, error) {
	const chunk = 500
	found := map[string]Suppression{}
	for len(addresses) > 0 {
		n := min(chunk, len(addresses))
		if err := suppressedAmong(ctx, r, teamID, addresses[:n], found); err != nil {
			return nil, err
		}
		addresses = addresses[n:]
	}
	return found, nil
}

// SuppressedNow is like Suppressed for the committed entries. It is called for each email that is sent.
func (s *Service) SuppressedNow(ctx context.Context, teamID string, addresses []string) (map[string]Suppression,
	error) {
	if len(addresses) != 1 {
		return s.Suppressed(ctx, s.d.Reader, teamID, addresses)
	}
	found, err := scan(s.d.ReadRow(ctx, selectOne, db.ID(teamID), addresses[0]))
	if errors.Is(err, db.ErrNoRows) {
		return nil, nil
	}
	return map[string]Suppression{found.Address: found}, err
}

// Recorded suppresses addresses after hard bounces and complaints. The event recorder calls Recorded for every event.
func (s *Service) Recorded(ctx context.Context, tx *db.Tx, all []events.Event) error {
	for _, e := range all {
		if e.ForwardRule != "" {
			continue
		}
		origin := Origin("")
		switch data := e.Data.(type) {
		case *events.Bounce:
			if e.Type == events.EmailBounced && data.Suppress && !data.Simulated {
				origin = Bounce
			}
		case *events.Complaint:
			if e.Type == events.EmailComplained && !data.Simulated {
				origin = Complaint
			}
		}
		if origin == "" || e.Recipient == "" {
			continue
		}
		key, err := normal("recipient", e.Recipient)
		if err != nil {
			return fmt.Errorf("suppress %s: %w", e.Recipient, err)
		}
		if _, err := s.add(ctx, tx, Suppression{TeamID: e.TeamID, Address: key, Origin: origin,
			SourceID: e.EmailID}); err != nil {
			return fmt.Errorf("suppress %s: %w", key, err)
		}
	}
	return nil
}
