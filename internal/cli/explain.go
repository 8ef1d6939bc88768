package cli

import (
	"context"
	"io"
	"strings"
	"unicode"

	"github.com/spf13/pflag"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/node"
)

func explainCommand() command {
	return command{use: "explain ID", group: groupEmail, source: ofNode, short: "explain the delivery of a sent email",
		long: "Explains what happened to a sent email, who must act, and what to do. ID is the id of a sent email. " +
			"Without --team, the email of any team is explained.",
		example: "postrider explain 0190f6a1-0000-7000-8000-00000000000a",
		define:  beside("explain", explainEmail)}
}

// explainEmail prints an explanation of an email's delivery.
func explainEmail(flags *pflag.FlagSet) action {
	team := flags.String("team", "", "the `team` that has the email, by id or exact name")
	return func(ctx context.Context, e *env, n *node.Node, words []string) error {
		emailID := strings.ToLower(words[0])
		teamID, err := emailTeam(ctx, n, *team, emailID)
		if err != nil {
			return err
		}
		answer, err := n.Explanations.Explain(ctx, teams.Actor{TeamID: teamID}, emailID)
		if err != nil {
			return err
		}
		return e.print(answer, func(w io.Writer) error {
			_, err := io.WriteString(w, printableLines(answer.Text()))
			return err
		})
	}
}

// emailTeam returns the team whose email is meant: the given one, by id or exact name, or the one that has the email.
func emailTeam(ctx context.Context, n *node.Node, team, emailID string) (teamID string, err error) {
	if team == "" {
		return n.Emails.FindTeam(ctx, emailID)
	}
	t, err := n.Teams.Find(ctx, team)
	if err == nil && !id.Valid(emailID) {
		err = fault.NotFoundf("Email not found")
	}
	return t.ID, err
}

// printableLines is like printable, but keeps the ends of lines and the spaces around them.
func printableLines(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}
