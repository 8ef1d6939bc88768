package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/node"
)

func usersCommand() command {
	disabled := func(disabled bool) action {
		return func(ctx context.Context, e *env, n *node.Node, words []string) error {
			return withUser(ctx, n, words[0], func(u users.User) error {
				if err := n.Users.SetDisabled(ctx, u.ID, disabled); err != nil {
					return err
				}
				u.Disabled = disabled
				return e.done(objectOfUser(&u), "")
			})
		}
	}
	return command{use: "users", group: groupPeople, source: ofNode, short: "manage users",
		long: "Manages the users of the installation, who sign in to the dashboard. A user belongs to any number of " +
			"teams. EMAIL is the address with which the user signs in.",
		example: "postrider users list\npostrider users create ada@example.com --name Ada",
		sub: []command{
			{use: "list", short: "list all users",
				long:    "Lists all users with their state, whether they have a second factor, and when they signed in last.",
				example: "postrider users list",
				define:  beside("users list", noFlags(listUsers))},
			{use: "create EMAIL", short: "create a user and print a link for setting the password",
				long:    "Creates a user who belongs to no team yet, and prints a link with which the user sets a password.",
				example: "postrider users create ada@example.com --name Ada",
				define:  beside("users create", createUser)},
			{use: "invite EMAIL", short: "print a link for joining a team",
				long: "Invites somebody to a team, and prints the link for joining it. If the address has no user yet, the " +
					"link creates one.",
				example: "postrider users invite ada@example.com --team Acme --role admin",
				define:  beside("users invite", inviteUser)},
			{use: "reset EMAIL", short: "print a link for a new password",
				long: "Prints a link with which a user sets a new password. With --factors, the user's second factors are " +
					"removed too, for a user who lost them.",
				example: "postrider users reset ada@example.com --factors",
				define:  beside("users reset", resetUser)},
			{use: "disable EMAIL", short: "end a user's sessions and refuse to sign the user in",
				long:    "Disables a user, whose sessions end at once. The user stays a member of the teams.",
				example: "postrider users disable ada@example.com",
				define:  beside("users disable", noFlags(disabled(true)))},
			{use: "enable EMAIL", short: "let a disabled user sign in again",
				long:    "Enables a user who was disabled. The user can sign in again.",
				example: "postrider users enable ada@example.com",
				define:  beside("users enable", noFlags(disabled(false)))},
			{use: "delete EMAIL", short: "delete a user",
				long:    "Deletes a user and removes it from all teams. The last owner of a team cannot be deleted.",
				example: "postrider users delete ada@example.com --yes",
				define:  beside("users delete", deleteUser)},
		}}
}

// userObject is a user in JSON.
type userObject struct {
	ID         string     `json:"id"`
	Email      string     `json:"email"`
	Name       *string    `json:"name"`
	Disabled   bool       `json:"disabled"`
	HasFactor  bool       `json:"has_second_factor"`
	CreatedAt  *time.Time `json:"created_at"`
	SignedInAt *time.Time `json:"signed_in_at"`
}

func objectOfUser(u *users.User) userObject {
	return userObject{u.ID, u.Email, nilIfZero(u.Name), u.Disabled, u.HasTOTP, moment(u.CreatedAt), moment(u.LastSignInAt)}
}

func withUser(ctx context.Context, n *node.Node, email string, do func(u users.User) error) error {
	u, err := n.Users.ByEmail(ctx, email)
	if err != nil {
		return fmt.Errorf("%s: %w", email, err)
	}
	return do(u)
}

func listUsers(ctx context.Context, e *env, n *node.Node, _ []string) error {
	l := e.list("user", "email", "name", "state", "second factor", "signed in")
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
				signedIn = clock(u.LastSignInAt)
			}
			l.add(objectOfUser(&u), u.ID, u.Email, printable(u.Name), state, factor, signedIn)
			after = u.ID
		}
		if len(all) < listStep {
			return l.end()
		}
	}
}

func createUser(flags *pflag.FlagSet) action {
	name := flags.String("name", "", "the user's name")
	return func(ctx context.Context, e *env, n *node.Node, words []string) error {
		u, err := n.Users.Create(ctx, users.NewUser{Email: words[0], Name: *name})
		if err != nil {
			return err
		}
		return printReset(ctx, n, e, u)
	}
}

func inviteUser(flags *pflag.FlagSet) action {
	team := flags.String("team", "", teamFlag)
	role := flags.String("role", string(teams.Member), "`role` of the member: owner, admin, member or viewer")
	oneOf(flags, "role", "owner", "admin", "member", "viewer")
	return func(ctx context.Context, e *env, n *node.Node, words []string) error {
		if *team == "" {
			return errNoTeam
		}
		return withTeam(ctx, n, *team, func(t teams.Team) error {
			_, link, err := n.Members.InviteLink(ctx, teams.System(t.ID), words[0], teams.Role(*role))
			if err != nil {
				return err
			}
			return e.done(struct {
				TeamID string `json:"team_id"`
				Email  string `json:"email"`
				Role   string `json:"role"`
				Link   string `json:"link"`
			}{t.ID, words[0], *role, link}, link)
		})
	}
}

func resetUser(flags *pflag.FlagSet) action {
	factors := flags.Bool("factors", false, "also remove passkeys, TOTP and recovery codes, for a user who lost them")
	return func(ctx context.Context, e *env, n *node.Node, words []string) error {
		return withUser(ctx, n, words[0], func(u users.User) error {
			if *factors {
				if err := n.Users.ClearFactors(ctx, u.ID); err != nil {
					return err
				}
			}
			return printReset(ctx, n, e, u)
		})
	}
}

// printReset prints a link to the page where the user sets a new password.
func printReset(ctx context.Context, n *node.Node, e *env, u users.User) error {
	link, err := n.Users.ResetLink(ctx, u.ID)
	if err != nil {
		return err
	}
	return e.done(struct {
		userObject
		Link string `json:"link"`
	}{objectOfUser(&u), link}, link)
}

func deleteUser(flags *pflag.FlagSet) action {
	yes := flags.Bool("yes", false, "confirm the deletion")
	return func(ctx context.Context, e *env, n *node.Node, words []string) error {
		return withUser(ctx, n, words[0], func(u users.User) error {
			if !*yes {
				return fmt.Errorf("this deletes the user %s and removes it from all teams; add --yes to confirm", u.Email)
			}
			if err := n.Users.Delete(ctx, u.ID); err != nil {
				return err
			}
			return e.done(deletedObject{u.ID, true}, "")
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
