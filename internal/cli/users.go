package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"text/tabwriter"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/node"
)

const usersUsage = `use one of
  postrider users list
  postrider users create EMAIL [--name NAME]
                                           (prints a link for setting the password)
  postrider users invite EMAIL --team TEAM [--role owner|admin|member|viewer]
                                           (prints a link for joining the team)
  postrider users reset EMAIL [--factors]  (prints a link for a new password; --factors
                                           also removes the user's second factors)
  postrider users disable EMAIL
  postrider users enable EMAIL
  postrider users delete EMAIL --yes
TEAM is an id or an exact name; put names with spaces in quotes`

// manageUsers runs the operator's commands for users.
func manageUsers(ctx context.Context, e *env, args []string) error {
	return runVerb(ctx, e, "users", usersUsage, []verb{
		{"list", 0, noFlags(listUsers)},
		{"create", 1, createUser},
		{"invite", 1, inviteUser},
		{"reset", 1, resetUser},
		{"disable", 1, noFlags(func(ctx context.Context, _ *env, n *node.Node, words []string) error {
			return withUser(ctx, n, words[0], func(u users.User) error { return n.Users.SetDisabled(ctx, u.ID, true) })
		})},
		{"enable", 1, noFlags(func(ctx context.Context, _ *env, n *node.Node, words []string) error {
			return withUser(ctx, n, words[0], func(u users.User) error { return n.Users.SetDisabled(ctx, u.ID, false) })
		})},
		{"delete", 1, deleteUser},
	}, args)
}

func withUser(ctx context.Context, n *node.Node, email string, do func(u users.User) error) error {
	u, err := n.Users.ByEmail(ctx, email)
	if err != nil {
		return fmt.Errorf("%s: %w", email, err)
	}
	return do(u)
}

func listUsers(ctx context.Context, e *env, n *node.Node, _ []string) error {
	w := tabwriter.NewWriter(e.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "user\temail\tname\tstate\tsecond factor\tsigned in")
	for after := ""; ; {
		all, err := n.Users.List(ctx, after, listStep)
		if err != nil {
			return err
		}
		for _, u := range all {
			state, factor, signedIn := "active", "no", "never"
			if u.Disabled {
				state = "disabled"
			}
			if u.HasTOTP {
				factor = "yes"
			}
			if !u.LastSignInAt.IsZero() {
				signedIn = u.LastSignInAt.Format("2006-01-02 15:04:05")
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", u.ID, u.Email, printable(u.Name), state, factor, signedIn)
			after = u.ID
		}
		if len(all) < listStep {
			return w.Flush()
		}
	}
}

func createUser(flags *flag.FlagSet) action {
	name := flags.String("name", "", "the user's name")
	return func(ctx context.Context, e *env, n *node.Node, words []string) error {
		u, err := n.Users.Create(ctx, users.NewUser{Email: words[0], Name: *name})
		if err != nil {
			return err
		}
		return printReset(ctx, n, e, u.ID)
	}
}

func inviteUser(flags *flag.FlagSet) action {
	team := flags.String("team", "", "the team, by id or exact name")
	role := flags.String("role", string(teams.Member), "role of the member: owner, admin, member or viewer")
	return func(ctx context.Context, e *env, n *node.Node, words []string) error {
		if *team == "" {
			return errors.New("--team is missing")
		}
		return withTeam(ctx, n, *team, func(t teams.Team) error {
			_, link, err := n.Members.InviteLink(ctx, teams.System(t.ID), words[0], teams.Role(*role))
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(e.out, link)
			return err
		})
	}
}

func resetUser(flags *flag.FlagSet) action {
	factors := flags.Bool("factors", false, "also remove passkeys, TOTP and recovery codes, for a user who lost them")
	return func(ctx context.Context, e *env, n *node.Node, words []string) error {
		return withUser(ctx, n, words[0], func(u users.User) error {
			if *factors {
				if err := n.Users.ClearFactors(ctx, u.ID); err != nil {
					return err
				}
			}
			return printReset(ctx, n, e, u.ID)
		})
	}
}

// printReset prints a link to the page where the user sets a new password.
func printReset(ctx context.Context, n *node.Node, e *env, userID string) error {
	link, err := n.Users.ResetLink(ctx, userID)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(e.out, link)
	return err
}

func deleteUser(flags *flag.FlagSet) action {
	yes := flags.Bool("yes", false, "confirm the deletion")
	return func(ctx context.Context, _ *env, n *node.Node, words []string) error {
		return withUser(ctx, n, words[0], func(u users.User) error {
			if !*yes {
				return fmt.Errorf("this deletes the user %s and removes it from all teams; add --yes to confirm", u.Email)
			}
			return n.Users.Delete(ctx, u.ID)
		})
	}
}

// logSetup logs a link for creating the first user, if no user exists. Errors are logged and not returned, so that the
// node still starts.
func logSetup(ctx context.Context, n *node.Node) {
	if !n.Has("api") {
		return
	}
	link, err := n.Users.SetupLink(ctx)
	switch {
	case err != nil:
		n.Log.Error("could not create the link for creating the first user", "error", err)
	case link != "":
		n.Log.Info("no user exists yet: create the first account, which owns a team, within three days", "link", link)
	}
}
