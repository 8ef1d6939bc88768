package users

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
)

// Attempts are counted for an hour from the first one, across all nodes. Each account has one count, whether
// it exists or not, and one for each network of clients. An IPv6 client belongs to three networks, because an attacker
// with a large network has many small ones: without counts of the large ones, guesses and rows would be unlimited. A
// large network has a higher limit, so that one subscriber cannot lock out all others of a provider.
//
// An attempt is counted before it is checked, and refunded if it succeeds, so that concurrent attempts cannot exceed
// the limit. Within the hour, only a password reset by mail lowers a count: a user who signs in now and then must not
// give an attacker more guesses.
//
// Passkeys are signatures and cannot be guessed. A sign-in by passkey is not limited, even while the account is locked.
const (
	attemptsFor      = time.Hour
	clocksDiffer     = time.Minute // upper bound of the difference between clocks of nodes
	passwordsAccount = 10          // wrong passwords for an account
	codesAccount     = 10          // codes of the second factor for an account
	resetsAccount    = 5           // requested reset links for an account
	perNetwork       = 50          // wrong passwords, wrong codes, or codes refused by the OIDC provider, from a network
	resetsNetwork    = 20
)

// limit is a counted name and its maximum.
type limit struct {
	name string
	most int64
}

// passwordLimits returns the limits of password attempts for an account, by its address.
func passwordLimits(email string, c Client) []limit {
	return append([]limit{{"password:" + hashToken(email), passwordsAccount}}, networkLimits("network", c, perNetwork)...)
}

func codeLimits(userID string, c Client) []limit {
	return append([]limit{{"code:" + userID, codesAccount}}, networkLimits("network", c, perNetwork)...)
}

func resetLimits(email string, c Client) []limit {
	return append([]limit{{"reset:" + hashToken(email), resetsAccount}}, networkLimits("resets", c, resetsNetwork)...)
}

// widerNetworks are the networks around the /64 of an IPv6 client: the /56 that a household often has, and the /48 of a
// site. times is their limit in multiples of the limit of a /64.
var widerNetworks = []struct {
	bits  int
	times int64
}{{56, 3}, {48, 10}}

// networkLimits returns the limits for the networks of a client, the smallest first. The fixed order keeps concurrent
// attempts from deadlocking.
func networkLimits(kind string, c Client, most int64) []limit {
	names := networks(c.Address)
	limits := []limit{{kind + ":" + names[0], most}}
	for i, name := range names[1:] {
		limits = append(limits, limit{kind + ":" + name, widerNetworks[i].times * most})
	}
	return limits
}

// networks returns the client's IPv4 address, or its IPv6 /64 and the wider networks. All clients without an address,
// as on a Unix socket, share one name.
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

// consumeAttempts counts an attempt. If a limit is reached, it counts nothing and returns a TooFast fault that says how
// long to wait.
func (s *Service) consumeAttempts(ctx context.Context, limits []limit) error {
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

// refundAttempt refunds an attempt that an error kept from being checked, and returns the error. Without the refund,
// users who retry while many people sign in would run out of attempts.
func (s *Service) refundAttempt(ctx context.Context, limits []limit, err error) error {
	failed := s.DB.Update(context.WithoutCancel(ctx), func(tx *db.Tx) error {
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
