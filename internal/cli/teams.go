package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
)

const listStep = 100 // number of rows that a list command reads per query

const teamsUsage = `use one of
  postrider teams create NAME [--email ADDRESS]
  postrider teams list
  postrider teams rename TEAM NAME
  postrider teams suspend TEAM
  postrider teams resume TEAM
  postrider teams show TEAM
  postrider teams members TEAM
  postrider teams limit TEAM [--rate N] [--daily N] [--monthly N]
                                           (requests per second; 0: as configured. Emails per day
                                           and month in UTC, sent and received; 0: no quota)
  postrider teams retention TEAM [--emails D] [--bodies D] [--received D] [--events D]
                                           (D is a duration such as 720h; 0: as configured)
  postrider teams delete TEAM --yes
TEAM is an id or an exact name; put names with spaces in quotes`

const keysUsage = `use one of
  postrider keys create --team TEAM [--name NAME] [--sending] [--create-team [--email ADDRESS]]
  postrider keys list --team TEAM
  postrider keys delete --team TEAM ID
TEAM is an id or an exact name; put names with spaces in quotes`

// action executes a verb. The parameter words holds the verb's positional arguments. A node may be running while the
// action runs.
type action = func(ctx context.Context, e *env, n *node.Node, words []string) error

// verb is a subcommand, such as create in `postrider teams create`.
type verb struct {
	name  string
	words int // number of positional arguments
	// define adds the verb's flags and returns its action, which runs after the flags are parsed.
	define func(flags *flag.FlagSet) action
}

// runVerb parses a verb's arguments and flags, and runs the verb.
func runVerb(ctx context.Context, e *env, command, usage string, verbs []verb, args []string) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	if isHelp(args[0]) {
		fmt.Fprintln(e.out, usage)
		return nil
	}
	i := slices.IndexFunc(verbs, func(v verb) bool { return v.name == args[0] })
	if i < 0 {
		return errors.New(usage)
	}
	v := verbs[i]
	flags := flag.NewFlagSet(command+" "+v.name, flag.ContinueOnError)
	run := v.define(flags)
	flags.Usage = verbUsage(flags, usage)
	c, words, err := e.loadWords(flags, args[1:], v.words)
	if errors.Is(err, errWords) {
		return fmt.Errorf("%w; %s", err, usage)
	}
	if err != nil {
		return err
	}
	n, err := openBeside(ctx, c, e)
	if err != nil {
		return err
	}
	defer n.Close()
	return run(recorded(ctx, command+" "+v.name), e, n, words)
}

// verbUsage returns a function that prints the usage text and the verb's own flags, which are the flags defined before
// the call to verbUsage. The flags for settings are defined later and are not printed, because there are too many of
// them.
func verbUsage(flags *flag.FlagSet, usage string) func() {
	own := flag.NewFlagSet(flags.Name(), flag.ContinueOnError)
	flags.VisitAll(func(f *flag.Flag) { own.Var(f.Value, f.Name, f.Usage) })
	print := flagUsage(own, usage)
	return func() {
		own.SetOutput(flags.Output())
		print()
		fmt.Fprint(own.Output(), "Every setting is a flag too, such as --config, --data-dir and --database-url: "+
			"docs/configuration.md lists them.\n")
	}
}

// flagUsage returns a function that prints the usage text and all flags.
func flagUsage(flags *flag.FlagSet, usage string) func() {
	return func() {
		fmt.Fprintf(flags.Output(), "%s\n\nFlags of %s:\n", usage, flags.Name())
		flags.PrintDefaults()
	}
}

var errWords = errors.New("wrong number of words")

// loadWords reads the configuration and the given number of positional arguments, which may precede or follow the
// flags. Flags between positional arguments cause an error, because package flag stops parsing at the first positional
// argument.
func (e *env) loadWords(flags *flag.FlagSet, args []string, count int) (c config.Config, words []string, err error) {
	for len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		words, args = append(words, args[0]), args[1:]
	}
	flags.SetOutput(e.errOut)
	c, err = config.Load(config.Source{Args: args, Flags: flags, Getenv: e.getenv})
	if err != nil {
		return c, nil, err
	}
	words = append(words, flags.Args()...)
	if len(words) != count {
		return c, nil, fmt.Errorf("%w: got %d, want %d (%q)", errWords, len(words), count, words)
	}
	return c, words, nil
}

// manageTeams runs the operator's commands for teams.
func manageTeams(ctx context.Context, e *env, args []string) error {
	return runVerb(ctx, e, "teams", teamsUsage, []verb{
		{"create", 1, createTeam},
		{"list", 0, noFlags(listTeams)},
		{"show", 1, noFlags(showTeam)},
		{"members", 1, noFlags(listMembers)},
		{"rename", 2, noFlags(func(ctx context.Context, _ *env, n *node.Node, words []string) error {
			return withTeam(ctx, n, words[0], func(t teams.Team) error { return n.Teams.Rename(ctx, t.ID, words[1]) })
		})},
		{"suspend", 1, noFlags(func(ctx context.Context, _ *env, n *node.Node, words []string) error {
			return withTeam(ctx, n, words[0], func(t teams.Team) error { return n.Teams.SetSuspended(ctx, t.ID, true) })
		})},
		{"resume", 1, noFlags(func(ctx context.Context, _ *env, n *node.Node, words []string) error {
			return withTeam(ctx, n, words[0], func(t teams.Team) error { return n.Teams.SetSuspended(ctx, t.ID, false) })
		})},
		{"limit", 1, limitTeam},
		{"retention", 1, retainTeam},
		{"delete", 1, deleteTeam},
	}, args)
}

func noFlags(run action) func(*flag.FlagSet) action {
	return func(*flag.FlagSet) action { return run }
}

func withTeam(ctx context.Context, n *node.Node, idOrName string, do func(t teams.Team) error) error {
	t, err := n.Teams.Find(ctx, idOrName)
	if err != nil {
		return err
	}
	audit.Team(ctx, t.ID)
	audit.Target(ctx, t.ID)
	return do(t)
}

func createTeam(flags *flag.FlagSet) action {
	email := flags.String("email", "", "address of the team's owner")
	return func(ctx context.Context, e *env, n *node.Node, words []string) error {
		t, err := n.Teams.Create(ctx, words[0], *email)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(e.out, t.ID)
		return err
	}
}

func limitTeam(flags *flag.FlagSet) action {
	rate := flags.Int("rate", -1, "requests per second; 0: as configured")
	daily := flags.Int64("daily", -1, "emails per day, sent and received; 0: no quota")
	monthly := flags.Int64("monthly", -1, "emails per month, sent and received; 0: no quota")
	return func(ctx context.Context, _ *env, n *node.Node, words []string) error {
		given := map[string]bool{}
		flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
		if !given["rate"] && !given["daily"] && !given["monthly"] {
			return errors.New("give a limit: --rate N, in requests per second, or 0 for the configured one; --daily N or " +
				"--monthly N, in emails, or 0 for no quota")
		}
		return withTeam(ctx, n, words[0], func(t teams.Team) error {
			if !given["daily"] && !given["monthly"] {
				return n.Teams.SetRateLimit(ctx, t.ID, *rate)
			}
			return n.Quotas.SetWith(ctx, n.Teams, t.ID, func(q *teams.Quota) {
				if given["daily"] {
					q.Daily = *daily
				}
				if given["monthly"] {
					q.Monthly = *monthly
				}
			}, func(tx *db.Tx) error {
				if !given["rate"] {
					return nil
				}
				return n.Teams.SetRateLimitIn(ctx, tx, t.ID, *rate)
			})
		})
	}
}

// showTeam prints a team with its limits and its usage.
func showTeam(ctx context.Context, e *env, n *node.Node, words []string) error {
	return withTeam(ctx, n, words[0], func(t teams.Team) error {
		u, err := n.Quotas.Usage(ctx, t.ID)
		if err != nil {
			return err
		}
		quota := func(used, limit int64) string {
			if limit == 0 {
				return "none"
			}
			return fmt.Sprintf("%d of %d used", used, limit)
		}
		w := tabwriter.NewWriter(e.out, 0, 0, 2, ' ', 0)
		for _, line := range [][2]string{{"id", t.ID}, {"name", t.Name}, {"owner", orDash(t.Email)}, {"rate", rateOf(&t)},
			{"daily quota", quota(u.Day, t.Daily)}, {"monthly quota", quota(u.Month, t.Monthly)}, {"state", stateOf(&t)},
			{"created", t.CreatedAt.Format("2006-01-02 15:04:05")}} {
			fmt.Fprintf(w, "%s\t%s\n", line[0], line[1])
		}
		return w.Flush()
	})
}

func rateOf(t *teams.Team) string {
	if t.RateLimit > 0 {
		return fmt.Sprintf("%d/s", t.RateLimit)
	}
	return "configured"
}

func stateOf(t *teams.Team) string {
	if t.Suspended {
		return "suspended"
	}
	return "active"
}

func orNone(n int64) string {
	if n == 0 {
		return "none"
	}
	return strconv.FormatInt(n, 10)
}

// retainTeam changes a team's retention periods and prints the new periods.
func retainTeam(flags *flag.FlagSet) action {
	type change struct {
		given bool
		d     time.Duration
	}
	var emails, bodies, received, events change
	for _, x := range []struct {
		name, what string
		to         *change
	}{
		{"emails", "sent emails", &emails},
		{"bodies", "the content of sent emails", &bodies},
		{"received", "received emails", &received},
		{"events", "timelines and attempts", &events},
	} {
		flags.Func(x.name, "how long "+x.what+" are kept, a `duration` such as 720h; 0: as configured",
			func(text string) (err error) {
				x.to.given = true
				x.to.d, err = time.ParseDuration(text)
				return err
			})
	}
	return func(ctx context.Context, e *env, n *node.Node, words []string) error {
		return withTeam(ctx, n, words[0], func(t teams.Team) error {
			if emails.given || bodies.given || received.given || events.given {
				err := n.Teams.SetRetention(ctx, t.ID, n.Keeps(), func(r *teams.Retention) {
					for _, x := range []struct {
						from change
						to   *time.Duration
					}{{emails, &r.Emails}, {bodies, &r.Bodies}, {received, &r.Received}, {events, &r.Events}} {
						if x.from.given {
							*x.to = x.from.d
						}
					}
				})
				if err != nil {
					return err
				}
			}
			return showRetention(ctx, n, e, t.ID)
		})
	}
}

// showRetention prints a team's retention periods and says whether each is set for the team or by the configuration.
func showRetention(ctx context.Context, n *node.Node, e *env, teamID string) error {
	own, err := n.Teams.Retention(ctx, teamID)
	if err != nil {
		return err
	}
	holds := own.Effective(n.Keeps())
	w := tabwriter.NewWriter(e.out, 0, 0, 2, ' ', 0)
	for _, x := range []struct {
		name       string
		own, holds time.Duration
	}{
		{"emails", own.Emails, holds.Emails},
		{"bodies", own.Bodies, holds.Bodies},
		{"received", own.Received, holds.Received},
		{"events", own.Events, holds.Events},
	} {
		kept, whose := x.holds.String(), "configured"
		if x.holds == 0 {
			kept = "forever"
		} else if x.own == x.holds {
			whose = "the team's"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", x.name, kept, whose)
	}
	return w.Flush()
}

func deleteTeam(flags *flag.FlagSet) action {
	yes := flags.Bool("yes", false, "confirm the deletion of the team and its data")
	return func(ctx context.Context, e *env, n *node.Node, words []string) error {
		return withTeam(ctx, n, words[0], func(t teams.Team) error {
			// If the operator's team were deleted, emails to the operator would go to the oldest remaining team.
			operator, err := n.Teams.Operator(ctx, n.Config.OperatorTeam)
			if err != nil && fault.KindOf(err) != fault.NotFound {
				return err
			}
			if operator.ID == t.ID {
				return fmt.Errorf("the team %s (%s) is the operator's: set operator_team to another one first", t.Name, t.ID)
			}
			if !*yes {
				return fmt.Errorf("this deletes the team %s (%s) with its keys, domains, emails and all other data; "+
					"add --yes to confirm",
					t.Name, t.ID)
			}
			if err := n.Teams.Delete(ctx, n.Queue, t.ID); err != nil {
				return err
			}
			_, err = fmt.Fprintf(e.out, "deleted %s; a node with the role jobs deletes its data\n", t.ID)
			return err
		})
	}
}

func listTeams(ctx context.Context, e *env, n *node.Node, _ []string) error {
	w := tabwriter.NewWriter(e.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "id\tname\towner\trate\tdaily\tmonthly\tstate\tcreated")
	for after := ""; ; {
		all, err := n.Teams.List(ctx, after, listStep)
		if err != nil {
			return err
		}
		if len(all) == 0 {
			return w.Flush()
		}
		for _, t := range all {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", t.ID, t.Name, orDash(t.Email), rateOf(&t), orNone(t.Daily),
				orNone(t.Monthly), stateOf(&t), t.CreatedAt.Format("2006-01-02 15:04:05"))
		}
		after = all[len(all)-1].ID
	}
}

// manageKeys runs the operator's API key commands, which are meant for creating the first key and for emergencies.
func manageKeys(ctx context.Context, e *env, args []string) error {
	return runVerb(ctx, e, "keys", keysUsage, []verb{{"create", 0, createKey}, {"list", 0, listKeys},
		{"delete", 1, deleteKey}}, args)
}

const teamFlag = "the team, by id or exact name"

var errNoTeam = errors.New("--team is missing: give the team's id or exact name; " +
	"`postrider teams list` shows all teams")

func createKey(flags *flag.FlagSet) action {
	team := flags.String("team", "", teamFlag)
	create := flags.Bool("create-team", false, "create the team if no team has the name")
	email := flags.String("email", "", "with --create-team: address of the new team's owner")
	name := flags.String("name", "command line", "name of the key")
	sending := flags.Bool("sending", false, "the key may only send")
	return func(ctx context.Context, e *env, n *node.Node, _ []string) error {
		if *team == "" {
			return errNoTeam
		}
		key := teams.NewKey{Name: *name, Permission: teams.FullAccess}
		if *sending {
			key.Permission = teams.SendingAccess
		}
		if !*create {
			if *email != "" {
				return errors.New("--email is the address of a new team's owner: use it with --create-team")
			}
			t, err := n.Teams.Find(ctx, *team)
			if fault.KindOf(err) == fault.NotFound {
				return fmt.Errorf("no team has the name or id %q: `postrider teams list` shows all teams, and --create-team "+
					"creates a new one", *team)
			}
			if err != nil {
				return err
			}
			*team = t.ID
		}
		_, token, err := n.Teams.CreateKeyFor(ctx, *team, *email, key)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(e.out, token)
		return err
	}
}

func listKeys(flags *flag.FlagSet) action {
	team := flags.String("team", "", teamFlag)
	return func(ctx context.Context, e *env, n *node.Node, _ []string) error {
		if *team == "" {
			return errNoTeam
		}
		return withTeam(ctx, n, *team, func(t teams.Team) error {
			w := tabwriter.NewWriter(e.out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "id\tname\tkey\tpermission\tdomain\tcreated\tlast used")
			for p := (page.Page{Limit: listStep}); ; {
				all, more, err := n.Teams.ListKeys(ctx, t.ID, p)
				if err != nil {
					return err
				}
				for _, k := range all {
					used := "-"
					if !k.LastUsedAt.IsZero() {
						used = k.LastUsedAt.Format("2006-01-02 15:04:05")
					}
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", k.ID, printable(k.Name), orDash(k.Hint), k.Permission,
						orDash(k.DomainID), k.CreatedAt.Format("2006-01-02 15:04:05"), used)
				}
				if !more {
					return w.Flush()
				}
				p.After = all[len(all)-1].ID
			}
		})
	}
}

func deleteKey(flags *flag.FlagSet) action {
	team := flags.String("team", "", teamFlag)
	return func(ctx context.Context, _ *env, n *node.Node, words []string) error {
		if *team == "" {
			return errNoTeam
		}
		return withTeam(ctx, n, *team, func(t teams.Team) error {
			return n.Teams.DeleteKey(ctx, t.ID,
				strings.ToLower(words[0]))
		})
	}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
