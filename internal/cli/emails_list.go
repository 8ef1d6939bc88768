package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/emails"
)

// listEmails prints the emails of a team that a filter selects, as GET /emails does.
func listEmails(flags *pflag.FlagSet) action {
	team := flags.String("team", "", "the `team` whose emails are listed, by id or exact name")
	limit := flags.Int("limit", 20, "the number of emails, at most 100")
	after := flags.String("after", "", "the id of an email: the list continues after it")
	filter := emailFilterFlags(flags)
	return func(ctx context.Context, e *env, n *node.Node, _ []string) error {
		if *team == "" {
			return errNoTeam
		}
		if *limit < 1 || *limit > 100 {
			return usageError("--limit must be a number from 1 to 100")
		}
		f, err := filter()
		if err != nil {
			return err
		}
		return withTeam(ctx, n, *team, func(t teams.Team) error {
			found, err := n.Emails.Search(ctx, teams.System(t.ID), f, page.Page{Limit: *limit,
				After: strings.ToLower(*after)})
			if err != nil {
				return err
			}
			return printEmails(e, found)
		})
	}
}

// emailFilterFlags adds the filters of GET /emails as flags. The returned function reads the flags after they are
// parsed.
func emailFilterFlags(flags *pflag.FlagSet) func() (emails.Filter, error) {
	var f emails.Filter
	var status, tag, since, until string
	var names []string
	for _, x := range []struct {
		dst        *string
		name, text string
	}{{&f.Query, "q", "an id, an address or a domain (@example.com), or beginnings of words in subject and addresses"},
		{&f.To, "to", "a recipient's address or domain"}, {&f.From, "from", "the sender's address or domain"},
		{&f.Subject, "subject", "beginnings of words in the subject"}, {&status, "status", "states, separated by commas"},
		{&tag, "tag", "the name of a tag, or name:value"}, {&f.DomainID, "domain-id", "the id of the sender's domain"},
		{&f.KeyID, "api-key-id", "the id of the API key"}, {&f.TemplateID, "template-id", "the id of the template"},
		{&f.BroadcastID, "broadcast-id", "the id of the broadcast"},
		{&since, "created-after", "the first moment, as 2006-01-02 or RFC 3339"},
		{&until, "created-before", "the end, which is excluded"}} {
		flags.StringVar(x.dst, x.name, "", x.text)
		names = append(names, x.name)
	}
	return func() (_ emails.Filter, err error) {
		// An empty variable of a script must not select all emails.
		flags.Visit(func(given *pflag.Flag) {
			if slices.Contains(names, given.Name) && strings.TrimSpace(given.Value.String()) == "" {
				err = usagef("--%s is empty; leave it out to select all emails", given.Name)
			}
		})
		if err != nil {
			return f, err
		}
		for name, address := range map[string]string{"from": f.From, "to": f.To} {
			if _, err := parseMoment("", address); address != "" && err == nil {
				return f, usagef("--%s is an address or a domain; use --created-after and --created-before for times", name)
			}
		}
		if status != "" {
			f.Status = strings.Split(status, ",")
		}
		if f.TagName, f.TagValue, _ = strings.Cut(tag, ":"); tag != "" && f.TagName == "" {
			return f, usageError("--tag must begin with the name of a tag, as in name or name:value")
		}
		if f.CreatedAfter, err = parseMoment("--created-after", since); err != nil {
			return f, err
		}
		f.CreatedBefore, err = parseMoment("--created-before", until)
		return f, err
	}
}

func parseMoment(name, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.DateOnly, time.RFC3339Nano} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, usagef("%s must be a date such as 2026-01-31, or a time in RFC 3339", name)
}

// emailObject is a sent email in JSON, as far as the list shows it.
type emailObject struct {
	ID        string     `json:"id"`
	CreatedAt *time.Time `json:"created_at"`
	LastEvent string     `json:"last_event"`
	To        []string   `json:"to"`
	Subject   string     `json:"subject"`
}

func printEmails(e *env, found emails.Found) error {
	if e.json {
		list := []emailObject{}
		for _, m := range found.Items {
			list = append(list, emailObject{m.ID, moment(m.CreatedAt), string(m.LastEvent), m.To, m.Subject})
		}
		return encode(e.out, struct {
			Data           []emailObject `json:"data"`
			SearchedBackTo *time.Time    `json:"searched_back_to"`
			After          *string       `json:"after"` // continues the list
		}{list, moment(found.SearchedBackTo), nilIfZero(found.Cursor(func(m *emails.Email) string { return m.ID }))})
	}
	w := tabwriter.NewWriter(e.out, 0, 0, 2, ' ', 0)
	for _, m := range found.Items {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", m.ID, m.CreatedAt.UTC().Format(time.RFC3339), m.LastEvent,
			strings.Join(m.To, ", "), m.Subject)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if !found.SearchedBackTo.IsZero() {
		fmt.Fprintf(e.out, "searched back to %s\n", found.SearchedBackTo.UTC().Format(time.RFC3339))
	}
	if next := found.Cursor(func(m *emails.Email) string { return m.ID }); next != "" {
		fmt.Fprintf(e.out, "continue with --after %s\n", next)
	}
	return nil
}

// indexEmails makes the search index of a team again.
func indexEmails(flags *pflag.FlagSet) action {
	team := flags.String("team", "", "the `team` whose search index is made, by id or exact name")
	return func(ctx context.Context, e *env, n *node.Node, _ []string) error {
		if *team == "" {
			return errNoTeam
		}
		return withTeam(ctx, n, *team, func(t teams.Team) error {
			if err := n.Emails.Index.Rebuild(ctx, t.ID); err != nil {
				return err
			}
			return e.done(struct {
				TeamID string `json:"team_id"`
			}{t.ID}, "the search index is complete")
		})
	}
}
