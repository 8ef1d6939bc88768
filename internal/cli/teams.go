package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
)

const listStep = 100 // number of rows that a list command reads per query

// Texts of flags and errors that several commands share.
const (
	teamFlag = "the `team`, by id or exact name"
	// teamWord says what the argument TEAM may be.
	teamWord = "TEAM is an id or an exact name; put names with spaces in quotes."
)

func teamsCommand() command {
	return command{use: "teams", group: groupPeople, source: ofNode, short: "manage teams, their limits and retention",
		long: "Manages teams. All data belongs to a team, and an API key acts for one team only. A running node notices " +
			"the changes. " + teamWord,
		example: "postrider teams create Acme --email owner@acme.example\npostrider teams list",
		sub: []command{
			{use: "create NAME", short: "create a team and print its id",
				long:    "Creates a team and prints its id. Several teams may have the same name.",
				example: "postrider teams create Acme --email owner@acme.example",
				define:  beside("teams create", createTeam)},
			{use: "list", short: "list all teams",
				long:    "Lists all teams with their limits and state, oldest first.",
				example: "postrider teams list",
				define:  beside("teams list", noFlags(listTeams))},
			{use: "show TEAM", short: "show a team, its limits and its usage",
				long:    "Shows a team with its rate limit, its quotas and how much of them is used. " + teamWord,
				example: `postrider teams show "Acme Ltd"`,
				define:  beside("teams show", noFlags(showTeam))},
			{use: "members TEAM", short: "list the members of a team",
				long:    "Lists the users who belong to a team, with their roles. " + teamWord,
				example: "postrider teams members Acme",
				define:  beside("teams members", noFlags(listMembers))},
			{use: "rename TEAM NAME", short: "change the name of a team",
				long:    "Changes the name of a team. Its id, keys and data stay the same. " + teamWord,
				example: `postrider teams rename Acme "Acme Ltd"`,
				define: beside("teams rename", noFlags(func(ctx context.Context, e *env, n *node.Node, words []string) error {
					return withTeam(ctx, n, words[0], func(t teams.Team) error {
						return changed(ctx, e, n, t.ID, n.Teams.Rename(ctx, t.ID, words[1]))
					})
				}))},
			{use: "suspend TEAM", short: "stop a team from sending and from using the API",
				long: "Suspends a team: its requests are refused, its broadcasts pause, and its scheduled emails fail when " +
					"they are due. Emails that it sent for immediate delivery before are still delivered. Its data stays. The page " +
					"operating/teams.md of the documentation lists all effects. " + teamWord,
				example: "postrider teams suspend Acme",
				define:  beside("teams suspend", noFlags(setSuspended(true)))},
			{use: "resume TEAM", short: "end the suspension of a team",
				long:    "Ends the suspension of a team, which can send and use the API again. " + teamWord,
				example: "postrider teams resume Acme",
				define:  beside("teams resume", noFlags(setSuspended(false)))},
			{use: "limit TEAM", short: "change the rate limit and the quotas of a team",
				long: "Changes the limits that are given as flags. The rate limit counts requests per second. The quotas " +
					"count emails per day and month in UTC, sent and received. " + teamWord,
				example: "postrider teams limit Acme --rate 50\npostrider teams limit Acme --daily 1000 --monthly 20000",
				define:  beside("teams limit", limitTeam)},
			{use: "retention TEAM", short: "show or change how long a team's data is kept",
				long: "Shows how long a team's emails are kept. With flags, it changes the times first; a team's time must " +
					"not be longer than the configured one. " + teamWord,
				example: "postrider teams retention Acme --emails 2160h",
				define:  beside("teams retention", retainTeam)},
			{use: "delete TEAM", short: "delete a team and all of its data",
				long: "Deletes a team with its keys, domains, emails and all other data. A node with the role jobs deletes " +
					"the data in the background. " + teamWord,
				example: "postrider teams delete Acme --yes",
				define:  beside("teams delete", deleteTeam)},
		}}
}

func setSuspended(suspended bool) action {
	return func(ctx context.Context, e *env, n *node.Node, words []string) error {
		return withTeam(ctx, n, words[0], func(t teams.Team) error {
			return changed(ctx, e, n, t.ID, n.Teams.SetSuspended(ctx, t.ID, suspended))
		})
	}
}

// changed ends a command that has changed a team, or has failed with the given error. With --json, it prints the team.
func changed(ctx context.Context, e *env, n *node.Node, teamID string, err error) error {
	if err != nil || !e.json {
		return err
	}
	t, err := n.Teams.Find(ctx, teamID)
	if err != nil {
		return err
	}
	return encode(e.out, objectOf(&t))
}

// teamObject is a team in JSON. A limit that is null is that of the configuration, and a quota that is null does not
// exist.
type teamObject struct {
	ID           string     `json:"id"`
	Name         string     `json:"name"`
	OwnerEmail   *string    `json:"owner_email"`
	RateLimit    *int       `json:"rate_limit"`
	DailyQuota   *int64     `json:"daily_quota"`
	MonthlyQuota *int64     `json:"monthly_quota"`
	Suspended    bool       `json:"suspended"`
	CreatedAt    *time.Time `json:"created_at"`
}

func objectOf(t *teams.Team) teamObject {
	return teamObject{t.ID, t.Name, nilIfZero(t.Email), nilIfZero(t.RateLimit), nilIfZero(t.Daily), nilIfZero(t.Monthly), t.Suspended,
		moment(t.CreatedAt)}
}

// deletedObject is a deleted object in JSON.
type deletedObject struct {
	ID      string `json:"id"`
	Deleted bool   `json:"deleted"`
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

func createTeam(flags *pflag.FlagSet) action {
	email := flags.String("email", "", "address of the team's owner")
	return func(ctx context.Context, e *env, n *node.Node, words []string) error {
		t, err := n.Teams.Create(ctx, words[0], *email)
		if err != nil {
			return err
		}
		return e.done(objectOf(&t), t.ID)
	}
}

func limitTeam(flags *pflag.FlagSet) action {
	rate := flags.Int("rate", -1, "requests per second; 0: as configured")
	daily := flags.Int64("daily", -1, "emails per day, sent and received; 0: no quota")
	monthly := flags.Int64("monthly", -1, "emails per month, sent and received; 0: no quota")
	return func(ctx context.Context, e *env, n *node.Node, words []string) error {
		given := map[string]bool{}
		flags.Visit(func(f *pflag.Flag) { given[f.Name] = true })
		if !given["rate"] && !given["daily"] && !given["monthly"] {
			return usageError("give a limit: --rate N, in requests per second, or 0 for the configured one; --daily N or " +
				"--monthly N, in emails, or 0 for no quota")
		}
		return withTeam(ctx, n, words[0], func(t teams.Team) error {
			if !given["daily"] && !given["monthly"] {
				return changed(ctx, e, n, t.ID, n.Teams.SetRateLimit(ctx, t.ID, *rate))
			}
			return changed(ctx, e, n, t.ID, n.Quotas.SetWith(ctx, n.Teams, t.ID, func(q *teams.Quota) {
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
			}))
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
		if e.json {
			return encode(e.out, struct {
				teamObject
				UsedToday     int64 `json:"used_today"`
				UsedThisMonth int64 `json:"used_this_month"`
			}{objectOf(&t), u.Day, u.Month})
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
func retainTeam(flags *pflag.FlagSet) action {
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
				if x.to.d, err = time.ParseDuration(text); err != nil {
					return fmt.Errorf("%q is not a duration: write it as 720h", text)
				}
				return nil
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
	object := map[string]any{"team_id": teamID}
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
		if e.json {
			object[x.name] = map[string]any{"seconds": nilIfZero(int64(x.holds / time.Second)), "own": whose != "configured"}
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", x.name, kept, whose)
	}
	if e.json {
		return encode(e.out, object)
	}
	return w.Flush()
}

func deleteTeam(flags *pflag.FlagSet) action {
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
			return e.done(deletedObject{t.ID, true}, "deleted "+t.ID+"; a node with the role jobs deletes its data")
		})
	}
}

func listTeams(ctx context.Context, e *env, n *node.Node, _ []string) error {
	l := e.list("id", "name", "owner", "rate", "daily", "monthly", "state", "created")
	for after := ""; ; {
		all, err := n.Teams.List(ctx, after, listStep)
		if err != nil {
			return err
		}
		if len(all) == 0 {
			return l.end()
		}
		for _, t := range all {
			l.add(objectOf(&t), t.ID, t.Name, orDash(t.Email), rateOf(&t), orNone(t.Daily), orNone(t.Monthly), stateOf(&t),
				clock(t.CreatedAt))
		}
		after = all[len(all)-1].ID
	}
}

func keysCommand() command {
	return command{use: "keys", group: groupPeople, source: ofNode,
		short: "manage a team's API keys, or rotate the secret key",
		long: "Manages the API keys of a team: the first key, and keys in an emergency. Teams manage their keys " +
			"themselves in the dashboard and the API. The subcommand rotate-master replaces the secret key of the " +
			"installation.",
		example: "postrider keys create --team Acme --name backend\npostrider keys list --team Acme",
		sub: []command{
			{use: "create", short: "create an API key and print it, this once",
				long: "Creates an API key and prints it. The key is not stored, so it cannot be shown again. With " +
					"--create-team, the team is created if no team has the name.",
				example: "postrider keys create --team Acme --name backend\n" +
					"postrider keys create --team Acme --create-team --email owner@acme.example",
				define: beside("keys create", createKey)},
			{use: "list", short: "list the API keys of a team",
				long:    "Lists the API keys of a team with their permissions and last use. The keys themselves are not stored.",
				example: "postrider keys list --team Acme",
				define:  beside("keys list", listKeys)},
			{use: "delete ID", short: "delete an API key",
				long:    "Deletes an API key. Requests with it are refused within seconds. ID is the id that `keys list` prints.",
				example: "postrider keys delete --team Acme 0190f6a1-0000-7000-8000-00000000000a",
				define:  beside("keys delete", deleteKey)},
			{use: "rotate-master", short: "put a new secret key before the former one in secret.key",
				long: "Puts a new secret key before the former ones in secret.key. After its next start, the node encrypts " +
					"the secrets in the database with the new key. docs/operating/keys.md describes the rotation.",
				example: "postrider keys rotate-master",
				define:  beside("keys rotate-master", noFlags(rotateMaster))},
		}}
}

const errNoTeam = usageError("--team is missing: give the team's id or exact name; `postrider teams list` shows all " +
	"teams")

func createKey(flags *pflag.FlagSet) action {
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
				return usageError("--email is the address of a new team's owner: use it with --create-team")
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
		made, token, err := n.Teams.CreateKeyFor(ctx, *team, *email, key)
		if err != nil {
			return err
		}
		return e.done(struct {
			keyObject
			Token string `json:"token"`
		}{objectOfKey(&made), token}, token)
	}
}

// keyObject is an API key in JSON. Its token is not stored.
type keyObject struct {
	ID         string     `json:"id"`
	TeamID     string     `json:"team_id"`
	Name       string     `json:"name"`
	Hint       *string    `json:"hint"`
	Permission string     `json:"permission"`
	DomainID   *string    `json:"domain_id"`
	CreatedAt  *time.Time `json:"created_at"`
	LastUsedAt *time.Time `json:"last_used_at"`
}

func objectOfKey(k *teams.Key) keyObject {
	return keyObject{k.ID, k.TeamID, k.Name, nilIfZero(k.Hint), string(k.Permission), nilIfZero(k.DomainID),
		moment(k.CreatedAt), moment(k.LastUsedAt)}
}

func listKeys(flags *pflag.FlagSet) action {
	team := flags.String("team", "", teamFlag)
	return func(ctx context.Context, e *env, n *node.Node, _ []string) error {
		if *team == "" {
			return errNoTeam
		}
		return withTeam(ctx, n, *team, func(t teams.Team) error {
			l := e.list("id", "name", "key", "permission", "domain", "created", "last used")
			for p := (page.Page{Limit: listStep}); ; {
				all, more, err := n.Teams.ListKeys(ctx, t.ID, p)
				if err != nil {
					return err
				}
				for _, k := range all {
					used := "-"
					if !k.LastUsedAt.IsZero() {
						used = clock(k.LastUsedAt)
					}
					l.add(objectOfKey(&k), k.ID, printable(k.Name), orDash(k.Hint), string(k.Permission), orDash(k.DomainID),
						clock(k.CreatedAt), used)
				}
				if !more {
					return l.end()
				}
				p.After = all[len(all)-1].ID
			}
		})
	}
}

func deleteKey(flags *pflag.FlagSet) action {
	team := flags.String("team", "", teamFlag)
	return func(ctx context.Context, e *env, n *node.Node, words []string) error {
		if *team == "" {
			return errNoTeam
		}
		return withTeam(ctx, n, *team, func(t teams.Team) error {
			keyID := strings.ToLower(words[0])
			if err := n.Teams.DeleteKey(ctx, t.ID, keyID); err != nil {
				return err
			}
			return e.done(deletedObject{keyID, true}, "")
		})
	}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
