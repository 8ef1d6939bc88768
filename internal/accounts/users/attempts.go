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

// Attempts are counted for an hour from the first, by all nodes together: for each account, whether it exists or not,
// and for each network of clients. Of IPv6 there are three networks around a client, because whoever has a large one
// has many small ones: without the large ones, neither the guesses nor the rows that count them would have a bound. A
// large one has room for a few of the smaller ones, so that one subscriber does not lock out all others of a provider.
//
// An attempt is counted before it is judged and given back when it succeeds, so that many at the same time are no more
// than the limit. Nothing else lowers a count before the hour is over, but a password that was reset by mail: someone
// who signs in now and then must not give a guesser more tries.
//
// A passkey is signed for, and cannot be guessed: signing in by one is not limited, also while the account waits.
const (
	attemptsFor      = time.Hour
	clocksDiffer     = time.Minute // more than the clocks of nodes do
	passwordsAccount = 10          // passwords that may be wrong for an account
	codesAccount     = 10          // codes of second factors
	resetsAccount    = 5           // links that may be asked for
	perNetwork       = 50          // wrong passwords and codes from a network, and codes that the OIDC provider refuses
	resetsNetwork    = 20
)

// limit is what is counted, and how many there may be.
type limit struct {
	name string
	most int64
}

// passwordLimits are those of giving the password of an account, by its address.
func passwordLimits(email string, c Client) []limit {
	return append([]limit{{"password:" + hashToken(email), passwordsAccount}}, networkLimits("network", c, perNetwork)...)
}

func codeLimits(userID string, c Client) []limit {
	return append([]limit{{"code:" + userID, codesAccount}}, networkLimits("network", c, perNetwork)...)
}

func resetLimits(email string, c Client) []limit {
	return append([]limit{{"reset:" + hashToken(email), resetsAccount}}, networkLimits("resets", c, resetsNetwork)...)
}

// widerNetworks are the networks around the /64 of a client: the /56 that a household often has, and the /48 of a site. Each
// has room for so many times what a /64 has.
var widerNetworks = []struct {
	bits  int
	times int64
}{{56, 3}, {48, 10}}

// networkLimits are those of the networks of a client, the smallest first, so that attempts at the same time lock their
// rows in one order.
func networkLimits(kind string, c Client, most int64) []limit {
	names := networks(c.Address)
	limits := []limit{{kind + ":" + names[0], most}}
	for i, name := range names[1:] {
		limits = append(limits, limit{kind + ":" + name, widerNetworks[i].times * most})
	}
	return limits
}

// networks are the client's address, or of IPv6 the /64 that a single subscriber has and what is wider. Clients without
// an address, as on a Unix socket, are one.
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

// consumeAttempts counts an attempt, or returns a fault TooFast that says how long to wait, and counts nothing.
func (s *Service) consumeAttempts(ctx context.Context, limits []limit) error {
	return s.d.Update(ctx, func(tx *db.Tx) error {
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

// refundAttempt gives back an attempt that an error kept from being judged, and returns the error. Otherwise who asks again
// while many sign in, as the error says, would soon have no attempt left.
func (s *Service) refundAttempt(ctx context.Context, limits []limit, err error) error {
	failed := s.d.Update(context.WithoutCancel(ctx), func(tx *db.Tx) error { refundAttempts(ctx, tx, limits); return nil })
	if failed != nil {
		s.log.Warn("could not give back an attempt to sign in", "error", failed)
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
