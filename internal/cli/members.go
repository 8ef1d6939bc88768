package cli

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/platform/page"
)

// listMembers prints the members of a team.
func listMembers(ctx context.Context, e *env, n *node.Node, words []string) error {
	return withTeam(ctx, n, words[0], func(t teams.Team) error {
		w := tabwriter.NewWriter(e.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "user\temail\tname\trole\tjoined")
		for p := (page.Page{Limit: listStep}); ; {
			all, more, err := n.Members.List(ctx, t.ID, p)
			if err != nil {
				return err
			}
			for _, m := range all {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", m.UserID, m.Email, printable(m.Name), m.Role,
					m.CreatedAt.Format("2006-01-02 15:04:05"))
			}
			if !more {
				return w.Flush()
			}
			p.After = all[len(all)-1].UserID
		}
	})
}
