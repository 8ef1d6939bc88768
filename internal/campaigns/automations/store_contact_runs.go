package automations

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
)

// contactRunsPage is the maximum number of runs that one call to RunsOfContact returns.
const contactRunsPage = 20

// ContactRun is a run together with all data that it stores about its contact.
type ContactRun struct {
	Run
	Automation        string // name of the automation, even if the automation was deleted
	Payload, Received string // JSON of the event that began the run, and of the events it received; "" for none
}

// RunsOfContact returns one page of a contact's runs with their steps, newest first. The page begins after the run
// whose id is given as after. The result next is the cursor for the next page, or "" if there is none.
func (s *Service) RunsOfContact(ctx context.Context, teamID, contactID, after string) (some []ContactRun, next string,
	err error) {
	some, more, err := page.Query(ctx, s.p.DB.Reader, page.Select{Text: `SELECT ` + shownColumns + `, a.epoch, a.name,
		r.payload, r.received` + shownFrom + ` JOIN automations a ON a.id = r.automation_id
		WHERE r.contact_id = $1 AND COALESCE(r.team_id, r.team_id) = $2`, ID: "r.id",
		Args: []any{db.ID(contactID), db.ID(teamID)}},
		page.Page{Limit: contactRunsPage, After: after}, func(r db.Row) (c ContactRun, err error) {
			var row shownRow
			var epoch int64
			err = r.Scan(row.dest(&epoch, &c.Automation, &c.Payload, &c.Received)...)
			c.Run = row.run()
			c.applyEpoch(epoch)
			return c, err
		})
	if err != nil {
		return nil, "", fmt.Errorf("read the runs of a contact: %w", err)
	}
	for i := range some {
		if some[i].Steps, err = stepsOf(ctx, s.p.DB.Reader, teamID, some[i].ID); err != nil {
			return nil, "", err
		}
	}
	if more {
		next = some[len(some)-1].ID
	}
	return some, next, nil
}
