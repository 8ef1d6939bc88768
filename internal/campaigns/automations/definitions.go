package automations

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/page"
)

const (
	// maxTries is the maximum number of attempts that Update makes if other requests change the automation concurrently.
	// At least one of several concurrent attempts always succeeds.
	maxTries   = 100
	copySuffix = " (copy)" // appended to the original's name
)

// NewAutomation describes an automation to create.
type NewAutomation struct {
	Name        string
	Status      Status         // "" is disabled
	Reentry     Reentry        // "" is always
	Steps       []byte         // JSON in the format of engine.Parse
	Connections []byte         // JSON
	By          teams.ActorRef // who creates it
}

// Create creates an automation with its first version.
func (s *Service) Create(ctx context.Context, teamID string, n NewAutomation) (Automation, error) {
	a := Automation{TeamID: teamID, Name: n.Name, Status: cmp.Or(n.Status, Disabled),
		Reentry: cmp.Or(n.Reentry, Always)}
	if err := a.check(); err != nil {
		return a, err
	}
	var err error
	if a.Graph, err = parse(n.Steps, n.Connections); err != nil {
		return a, err
	}
	if err := s.checkReferences(ctx, teamID, a.Graph, a.Status == Enabled); err != nil {
		return a, err
	}
	err = s.p.DB.Update(ctx, func(tx *db.Tx) error {
		if err := s.add(ctx, tx, &a); err != nil {
			return err
		}
		setApp(ctx, tx, &a, n.By)
		return nil
	})
	return a, err
}

// check validates all fields of an automation except its graph.
func (a *Automation) check() error {
	switch {
	case strings.TrimSpace(a.Name) == "":
		return fault.MissingField("name")
	case utf8.RuneCountInString(a.Name) > MaxName || hasControl(a.Name):
		return fault.Invalidf("name", "The `name` field must have at most %d characters and no control "+
			"characters.", MaxName)
	case a.Status != Enabled && a.Status != Disabled:
		return fault.Invalidf("status", "The `status` field must be `enabled` or `disabled`.")
	case !slices.Contains([]Reentry{Always, OnceAtATime, Once}, a.Reentry):
		return fault.Invalidf("reentry", "The `reentry` field must be `always`, `once_at_a_time` or `once`.")
	}
	return nil
}

func hasControl(text string) bool {
	return !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// parse parses a graph, and returns an error if the list of steps or the list of connections is missing.
func parse(steps, connections []byte) (*engine.Graph, error) {
	if absent(steps) {
		return nil, fault.MissingField("steps")
	}
	if absent(connections) {
		return nil, fault.MissingField("connections")
	}
	return engine.Parse(steps, connections)
}

// absent reports whether a JSON value is empty or null.
func absent(text []byte) bool {
	text = bytes.TrimSpace(text)
	return len(text) == 0 || string(text) == "null"
}

// add inserts an automation with its first version. Because the transaction may be retried, add resets all fields that
// it changes on each call.
func (s *Service) add(ctx context.Context, tx *db.Tx, a *Automation) error {
	if err := tx.Serialize(ctx, definitionsOf(a.TeamID)); err != nil {
		return err
	}
	n, err := countAutomations(ctx, tx.Reader, a.TeamID)
	if err != nil {
		return err
	}
	if n >= MaxTeam {
		return fault.Invalidf("", "A team has at most %d automations. Delete one that is not needed.", MaxTeam)
	}
	a.ID, a.CreatedAt, a.UpdatedAt, a.Version, a.epoch, a.revision = id.At(tx.Now()), tx.Now(), tx.Now(), 0, 1, 1
	s.addVersion(ctx, tx, a)
	insertAutomation(ctx, tx, a)
	audit.Target(ctx, a.ID)
	return s.writeTriggers(ctx, tx, a)
}

// definitionsOf returns the name of the lock that serializes changes to a team's automations. The lock is needed
// because no database constraint limits the number of a team's automations or the number of automations with the same
// event.
func definitionsOf(teamID string) string { return "automations of " + teamID }

// addVersion inserts an automation's graph as its next version. New runs use that version once the automation is saved.
func (s *Service) addVersion(ctx context.Context, tx *db.Tx, a *Automation) {
	a.Version++
	a.versionID = id.At(tx.Now())
	insertVersion(ctx, tx, a)
}

// writeTriggers replaces an automation's trigger rows, which determine which events begin runs. A disabled automation
// has no trigger rows. The caller must hold the lock named by definitionsOf.
func (s *Service) writeTriggers(ctx context.Context, tx *db.Tx, a *Automation) error {
	deleteTriggers(ctx, tx, a.TeamID, a.ID)
	if a.Status != Enabled {
		return nil
	}
	for _, event := range a.Graph.Triggers() {
		n, err := countTriggers(ctx, tx.Reader, a.TeamID, event)
		if err != nil {
			return err
		}
		if n >= MaxEvent {
			at := a.Graph.TriggerOf(event)
			return a.Graph.ReferenceError(at, fault.Invalidf(at.Field, "There are %d enabled automations already that the "+
				"event `%s` triggers, as many as a team may have. Disable or delete one of them.", MaxEvent, event))
		}
		o, ok := a.Graph.Opening(event)
		if !ok {
			return fmt.Errorf("version %s has no trigger for the event %s", a.versionID, event)
		}
		insertTrigger(ctx, tx, a, event, o)
	}
	return nil
}

// Get returns an automation with its graph.
func (s *Service) Get(ctx context.Context, teamID, automationID string) (Automation, error) {
	return getWithGraph(ctx, s.p.DB.Reader, teamID, automationID)
}

// List returns a page of a team's automations, newest first, without their graphs. If the status is empty, List returns
// automations with any status.
func (s *Service) List(ctx context.Context, teamID string, status Status, p page.Page) ([]Automation, bool, error) {
	if status != "" && status != Enabled && status != Disabled {
		return nil, false, fault.Invalidf("status", "The `status` parameter must be `enabled` or `disabled`.")
	}
	return listAutomations(ctx, s.p.DB.Reader, teamID, status, p)
}

// Change describes a change to an automation. A nil field leaves the automation's value unchanged.
type Change struct {
	Name        *string
	Status      *Status
	Reentry     *Reentry
	Steps       []byte // JSON; must be changed together with Connections
	Connections []byte
	By          teams.ActorRef // who changes it
}

// Update changes an automation. A new graph creates a new version. New runs use that version, and existing runs keep
// theirs. Disabling the automation does not end existing runs; [Service.Stop] does.
func (s *Service) Update(ctx context.Context, teamID, automationID string, c Change) (Automation, error) {
	if absent(c.Steps) != absent(c.Connections) {
		field, other := "connections", "steps"
		if absent(c.Steps) {
			field, other = other, field
		}
		return Automation{}, fault.New(fault.Missing, field, "Missing `%s` field: `steps` and `connections` are "+
			"changed together, and the request has only `%s`.", field, other)
	}
	if c.Name == nil && c.Status == nil && c.Reentry == nil && absent(c.Steps) {
		return Automation{}, fault.Invalidf("", "The request changes nothing. Give at least one of `name`, `status`, "+
			"`reentry`, and `steps` with `connections`.")
	}
	var g *engine.Graph
	if !absent(c.Steps) {
		var err error
		if g, err = engine.Parse(c.Steps, c.Connections); err != nil {
			return Automation{}, err
		}
	}
	for range maxTries {
		a, err := s.changeOnce(ctx, teamID, automationID, c, g)
		if !errors.Is(err, errAutomationChanged) {
			return a, err
		}
	}
	return Automation{}, fault.New(fault.Locked, "",
		"The automation is being changed by other requests. Try again in a moment.")
}

// errAutomationChanged means that an automation has been changed since it was read.
var errAutomationChanged = errors.New("the automation was changed after it was read")

// changeOnce reads an automation and applies a change to it. If another request changed the automation after it was
// read, changeOnce returns errAutomationChanged. The parameter g is the new graph, or nil to keep the current graph.
func (s *Service) changeOnce(ctx context.Context, teamID, automationID string, c Change, g *engine.Graph) (Automation,
	error) {
	before, err := getWithGraph(ctx, s.p.DB.Reader, teamID, automationID)
	if err != nil {
		return before, err
	}
	to := before
	if c.Name != nil {
		to.Name = *c.Name
	}
	if c.Status != nil {
		to.Status = *c.Status
	}
	if c.Reentry != nil {
		to.Reentry = *c.Reentry
	}
	if err := to.check(); err != nil {
		return before, err
	}
	other := g != nil && !sameGraph(g, before.Graph)
	if other {
		to.Graph = g
	}
	enables := to.Status == Enabled && before.Status != Enabled
	if g != nil || enables { // objects that the steps refer to may have been deleted
		if err := s.checkReferences(ctx, teamID, to.Graph, to.Status == Enabled); err != nil {
			return before, err
		}
	}
	if !other && to.Name == before.Name && to.Status == before.Status && to.Reentry == before.Reentry {
		return before, nil
	}
	after := to
	err = s.p.DB.Update(ctx, func(tx *db.Tx) error {
		after = to
		if err := tx.Serialize(ctx, definitionsOf(teamID)); err != nil {
			return err
		}
		if claimed, err := claim(ctx, tx, &after); err != nil {
			return err
		} else if !claimed {
			return errAutomationChanged
		}
		after.UpdatedAt = tx.Now()
		if other {
			if err := pruneVersions(ctx, tx, &after); err != nil {
				return err
			}
			s.addVersion(ctx, tx, &after)
		} else if enables {
			markUsed(ctx, tx, &after)
		}
		if other || enables {
			setApp(ctx, tx, &after, c.By)
		}
		save(ctx, tx, &after)
		return s.writeTriggers(ctx, tx, &after)
	})
	return after, err
}

// pruneVersions deletes the unused versions of an automation before the graph is replaced. If the automation still has
// maxVersions versions, pruneVersions returns an error.
func pruneVersions(ctx context.Context, tx *db.Tx, a *Automation) error {
	deleteUnused(ctx, tx, a.TeamID, a.versionID)
	if err := deleteWithoutRuns(ctx, tx, a); err != nil {
		return err
	}
	n, err := countVersions(ctx, tx.Reader, a)
	if err != nil {
		return err
	}
	if n >= maxVersions {
		return fault.Invalidf("steps", "The automation has %d versions with which runs can have begun, as many as it may "+
			"have. Duplicate it by POST /automations/{id}/duplicate, and change the copy.", maxVersions)
	}
	return nil
}

// sameGraph reports whether two graphs have the same JSON.
func sameGraph(a, b *engine.Graph) bool {
	return bytes.Equal(a.StepsJSON(), b.StepsJSON()) && bytes.Equal(a.ConnectionsJSON(), b.ConnectionsJSON())
}

// Duplicate adds a disabled copy of an automation. The references in the copy's steps are checked when the copy is
// enabled.
func (s *Service) Duplicate(ctx context.Context, teamID, automationID string) (Automation, error) {
	of, err := s.Get(ctx, teamID, automationID)
	if err != nil {
		return of, err
	}
	a := Automation{TeamID: teamID, Name: copyName(of.Name), Status: Disabled, Reentry: of.Reentry, Graph: of.Graph}
	err = s.p.DB.Update(ctx, func(tx *db.Tx) error { return s.add(ctx, tx, &a) })
	return a, err
}

// copyName returns the name of an automation's copy, truncated to MaxName characters.
func copyName(name string) string {
	runes := []rune(name)
	if most := MaxName - len(copySuffix); len(runes) > most {
		name = strings.TrimSpace(string(runes[:most]))
	}
	return name + copySuffix
}

// runKind is the kind of job that carries out the due steps of a run. Lanes are teams.
const runKind = "automations.run"

// endKind is the kind of job that ends the runs of a stopped or deleted automation. Each call to Stop enqueues its own
// job, because a job that is already running may have listed the runs before the call.
const endKind = "automations.end"

// Stop disables an automation and cancels its runs. Once Stop has committed, the runs carry out no more steps, and a
// job ends them.
func (s *Service) Stop(ctx context.Context, teamID, automationID string) (a Automation, err error) {
	err = s.p.DB.Update(ctx, func(tx *db.Tx) error {
		a, err = markStopped(ctx, tx, teamID, automationID)
		if err == nil {
			s.endRuns(ctx, tx, &a)
		}
		return err
	})
	return a, err
}

// Delete deletes an automation and, like [Service.Stop], cancels its runs. [Service.Sweep] deletes the automation's
// rows later.
func (s *Service) Delete(ctx context.Context, teamID, automationID string) error {
	return s.p.DB.Update(ctx, func(tx *db.Tx) error {
		a, err := markDeleted(ctx, tx, teamID, automationID)
		if err == nil {
			deleteApp(ctx, tx, teamID, automationID)
			s.endRuns(ctx, tx, &a)
		}
		return err
	})
}

// endRuns deletes the triggers of an automation and enqueues the job that ends its runs.
func (s *Service) endRuns(ctx context.Context, tx *db.Tx, a *Automation) {
	deleteTriggers(ctx, tx, a.TeamID, a.ID)
	s.p.Queue.Insert(ctx, tx, jobs.New{Kind: endKind, Lane: a.TeamID, TeamID: a.TeamID,
		Dedupe: fmt.Sprintf("%s %d", a.ID, a.epoch), Payload: a.ID})
}
