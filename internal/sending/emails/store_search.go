package emails

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/search"
)

// searchedEmails returns the list of a team's emails for a search.
func searchedEmails(d *db.DB, teamID string, c *criteria) search.List[Email] {
	all := page.Select{Text: `SELECT ` + emailColumns + ` FROM emails e WHERE e.team_id = $1`, ID: "e.id",
		InSpans: !d.Alone(), Args: []any{db.ID(teamID)}}
	some := all
	where, args := c.where([]any{db.ID(teamID)})
	some.Text, some.Args = some.Text+where, args
	list := search.List[Email]{DB: d, TeamID: teamID, All: all, Some: some, Scan: scanEmail,
		ID: func(e *Email) string { return e.ID },
		ByID: func(ctx context.Context, ids []string, lo, hi string) (map[string]Email, error) {
			return selectByID(ctx, d.Reader, c, teamID, ids, lo, hi)
		}}
	if !c.SelectAll() || c.TagName != "" {
		list.Select = c.selects
	}
	return list
}

// where returns conditions on the columns of emails, and appends their arguments to args.
func (c *criteria) where(args []any) (string, []any) {
	text := ""
	add := func(condition string, arg any) {
		args = append(args, arg)
		text += fmt.Sprintf(" AND "+condition, len(args))
	}
	if len(c.states) > 0 {
		add("e.last_event = ANY($%d)", c.states)
	}
	for _, x := range []struct{ column, id string }{{"domain_id", c.DomainID}, {"actor_id", c.KeyID},
		{"template_id", c.TemplateID}, {"broadcast_id", c.BroadcastID}} {
		if x.id != "" {
			add("e."+x.column+" = $%d", db.ID(x.id))
		}
	}
	if !c.CreatedAfter.IsZero() {
		add("e.created_at >= $%d", c.CreatedAfter.UnixMicro())
	}
	if !c.CreatedBefore.IsZero() {
		add("e.created_at < $%d", c.CreatedBefore.UnixMicro())
	}
	return text, args
}

// selectByID returns those of the given emails that meet the conditions of a search on columns. The ids are between lo
// and hi.
func selectByID(ctx context.Context, r db.Reader, c *criteria, teamID string, ids []string, lo, hi string) (
	map[string]Email, error) {
	where, args := c.where([]any{db.ID(teamID), db.IDs(ids), db.ID(lo), db.ID(hi)})
	rows, err := r.Query(ctx, `SELECT `+emailColumns+` FROM emails e WHERE e.team_id = $1 AND e.id = ANY($2)
		AND e.id >= $3 AND e.id <= $4`+where, args...)
	all, err := db.Collect(rows, err, scanEmail)
	if err != nil {
		return nil, err
	}
	found := make(map[string]Email, len(all))
	for _, e := range all {
		found[e.ID] = e
	}
	return found, nil
}

// messagesBetween reads emails for the search index; it is a [search.Messages].
func (s *Service) messagesBetween(ctx context.Context, teamID, after, before string, limit int) ([]search.Message,
	error) {
	rows, err := s.DB.Query(ctx, `SELECT e.id, e.actor_id, e.domain_id, e.sender, e.subject, e.recipients, e.recipient,
		e.tags, e.template_id, e.broadcast_id FROM emails e WHERE e.team_id = $1 AND e.id > $2 AND e.id < $3
		ORDER BY e.id LIMIT $4`, db.ID(teamID), db.OrNoID(after), db.ID(before), limit)
	return db.Collect(rows, err, func(r db.Row) (search.Message, error) {
		var x emailRow
		err := r.Scan((*db.ID)(&x.ID), (*db.ID)(&x.Actor.ID), (*db.ID)(&x.DomainID), &x.From, &x.Subject, &x.to, &x.only,
			&x.tags, (*db.ID)(&x.TemplateID), (*db.ID)(&x.BroadcastID))
		if err == nil {
			err = x.decodeLists()
		}
		return messageOf(&x.Email), err
	})
}
