package users

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
)

// Sign-in attempts are counted across all nodes, for an hour from the first attempt. There is one counter per account
// address, even if no such account exists, and one per client network.
//
// Sessions that confirm their user's password have counters of their own: one per session, and one for all sessions of
// the user. Other people's wrong passwords, such as those on the sign-in page or from the same network, cannot lock out
// a signed-in user.
//
// An IPv6 client belongs to three networks (/64, /56 and /48). Without counts for the larger networks, an attacker with
// a /48 could switch between thousands of /64 networks to make almost unlimited guesses and create almost unlimited
// rows. A larger network has a higher limit, so that one customer of an internet provider cannot lock out the
// provider's other customers.
//
// An attempt is counted before the password or code is checked, and refunded if it succeeds, so that concurrent
// attempts cannot exceed the limit. A successful sign-in does not reset the count of failed attempts, because a reset
// would give an attacker more guesses. Only a password reset by email resets the count within the hour.
//
// Sign-ins by passkey are not limited, even while the account is locked, because a passkey's signature cannot be
// guessed.
const (
	attemptsFor      = time.Hour
	clocksDiffer     = time.Minute // maximum expected clock difference between nodes
	passwordsAccount = 10          // limit on wrong passwords per account
	passwordsSession = 10          // limit on wrong passwords per session that confirms its user's identity
	proofsAccount    = 50          // limit on wrong passwords of all sessions of a user together
	codesAccount     = 10          // limit on wrong two-factor codes per account
	resetsAccount    = 5           // limit on requested password reset links per account
	perNetwork       = 50          // limit per network on wrong passwords and codes, and on OIDC callbacks that fail
	resetsNetwork    = 20
)

// limit is the name and the maximum of an attempt counter.
type limit struct {
	name string
	most int64
}

// passwordLimits returns the limits on password attempts for the account with the given email address and for the
// client's networks.
func passwordLimits(email string, c Client) []limit {
	return append([]limit{{"password:" + hashToken(email), passwordsAccount}}, networkLimits("network", c, perNetwork)...)
}

// proofLimits returns the limits on confirming the user's identity in a session. The attempt also counts toward the
// client's networks, and so against sign-ins from there, but the networks' limits do not apply to it. Otherwise other
// clients of the same network could lock out a signed-in user.
func proofLimits(session Session, c Client) []limit {
	limits := []limit{{"proof:" + session.ID, passwordsSession}, {"proofs:" + session.UserID, proofsAccount}}
	for _, l := range networkLimits("network", c, perNetwork) {
		limits = append(limits, limit{l.name, math.MaxInt64})
	}
	return limits
}

func codeLimits(userID string, c Client) []limit {
	return append([]limit{{"code:" + userID, codesAccount}}, networkLimits("network", c, perNetwork)...)
}

func resetLimits(email string, c Client) []limit {
	return append([]limit{{"reset:" + hashToken(email), resetsAccount}}, networkLimits("resets", c, resetsNetwork)...)
}

// widerNetworks lists the sizes of the larger networks that contain an IPv6 client's /64: a /56, which a household
// often has, and a /48, which a site has. The field times says how many times higher a wider network's limit is than
// the limit of a /64.
var widerNetworks = []struct {
	bits  int
	times int64
}{{56, 3}, {48, 10}}

// networkLimits returns the limits for a client's networks, starting with the smallest network. The fixed order
// prevents deadlocks between concurrent attempts.
func networkLimits(kind string, c Client, most int64) []limit {
	names := networks(c.Address)
	limits := []limit{{kind + ":" + names[0], most}}
	for i, name := range names[1:] {
		limits = append(limits, limit{kind + ":" + name, widerNetworks[i].times * most})
	}
	return limits
}

// networks returns the names of a client's networks: its IPv4 address, or its IPv6 /64 and the wider networks. All
// clients without an IP address, for example on a Unix socket, share the empty name.
func networks(address string) []string {
	a, err := netip.ParseAddr(strings.Trim(address, "[]"))
	if err != nil {
		return []string{""}
	}
	a = a.Unmap().WithZone("")
	if a.Is4() {
		return []string{a.String()}
	}
	names := []string{netip.PrefixFrom(a, 64).Masked().String()}
	for _, w := range widerNetworks {
		names = append(names, netip.PrefixFrom(a, w.bits).Masked().String())
	}
	return names
}

// consumeAttempts counts one attempt against each limit. If a limit is already reached, consumeAttempts counts nothing
// and returns a TooFast fault that says how long to wait.
func (s *Service) consumeAttempts(ctx context.Context, limits []limit) error {
	ctx = db.WithoutAddition(ctx) // the caller asked for something else
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		now := s.now()
		for _, l := range limits {
			n, since, err := countAttempt(ctx, tx, l.name, now)
			if err != nil {
				return fmt.Errorf("count an attempt: %w", err)
			}
			if n > l.most {
				return tooMany(since.Add(attemptsFor).Sub(now))
			}
		}
		return nil
	})
}

// refundAttempt refunds an attempt whose password or code could not be checked because of the given error, and returns
// that error. Without the refund, users who retry while the server is busy would reach the limit.
func (s *Service) refundAttempt(ctx context.Context, limits []limit, err error) error {
	ctx = db.WithoutAddition(context.WithoutCancel(ctx))
	failed := s.DB.Update(ctx, func(tx *db.Tx) error {
		refundAttempts(ctx, tx, limits)
		return nil
	})
	if failed != nil {
		s.Log.Warn("could not give back an attempt to sign in", "error", failed)
	}
	return err
}

func tooMany(wait time.Duration) error {
	minutes := int(max(wait+time.Minute-1, time.Minute) / time.Minute)
	unit := "minutes"
	if minutes == 1 {
		unit = "minute"
	}
	return fault.New(fault.TooFast, "", "There were too many attempts. Try again in %d %s.", minutes, unit)
}
