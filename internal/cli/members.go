package cli

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/platform/page"
)

// memberObject is a member of a team in JSON.
type memberObject struct {
	UserID   string     `json:"user_id"`
	Email    string     `json:"email"`
	Name     *string    `json:"name"`
	Role     string     `json:"role"`
	JoinedAt *time.Time `json:"joined_at"`
}

// listMembers prints the members of a team.
func listMembers(ctx context.Context, e *env, n *node.Node, words []string) error {
	return withTeam(ctx, n, words[0], func(t teams.Team) error {
		l := e.list("user", "email", "name", "role", "joined")
		for p := (page.Page{Limit: listStep}); ; {
			all, more, err := n.Members.List(ctx, t.ID, p)
			if err != nil {
				return err
			}
			for _, m := range all {
				l.add(memberObject{m.UserID, m.Email, nilIfZero(m.Name), string(m.Role), moment(m.CreatedAt)}, m.UserID, m.Email,
					printable(m.Name), string(m.Role), clock(m.CreatedAt))
			}
			if !more {
				return l.end()
			}
			p.After = all[len(all)-1].UserID
		}
	})
}
