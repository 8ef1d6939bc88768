package cli

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/node"
)

const explainUsage = `use
  postrider explain ID [--team TEAM] [--json]
ID is the id of a sent email. TEAM is the team's id or exact name; without it, the email of any team is explained`

// explainEmail prints an explanation of an email's delivery.
func explainEmail(ctx context.Context, e *env, args []string) error {
	flags := flag.NewFlagSet("explain", flag.ContinueOnError)
	team := flags.String("team", "", "the team that has the email, by id or exact name")
	asJSON := flags.Bool("json", false, "print JSON, as the API returns it")
	flags.Usage = verbUsage(flags, explainUsage)
	c, words, err := e.loadWords(flags, args, 1)
	if errors.Is(err, errWords) {
		return fmt.Errorf("%w; %s", err, explainUsage)
	}
	if err != nil {
		return err
	}
	n, err := openBeside(ctx, c, e)
	if err != nil {
		return err
	}
	defer n.Close()
	emailID := strings.ToLower(words[0])
	teamID, err := emailTeam(ctx, n, *team, emailID)
	if err != nil {
		return err
	}
	answer, err := n.Explanations.Explain(ctx, teams.Actor{TeamID: teamID}, emailID)
	if err != nil {
		return err
	}
	if *asJSON {
		out := json.NewEncoder(e.out)
		out.SetIndent("", "  ")
		return out.Encode(answer)
	}
	_, err = io.WriteString(e.out, printableLines(answer.Text()))
	return err
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
