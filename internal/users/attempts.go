package users

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/fault"
)

// Attempts are counted for an hour from the first, by all nodes together: for each account, whether it exists or not,
// and for each network of clients. An attempt is counted before it is judged and given back when it succeeds, so
// that many at the same time are no more than the limit. Nothing else lowers a count before the hour is over, but a
// password that was reset by mail: someone who signs in now and then must not give a guesser more tries.
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
	return []limit{{"password:" + hashToken(email), passwordsAccount}, networkLimit("network", c, perNetwork)}
}

func codeLimits(userID string, c Client) []limit {
	return []limit{{"code:" + userID, codesAccount}, networkLimit("network", c, perNetwork)}
}

func resetLimits(email string, c Client) []limit {
	return []limit{{"reset:" + hashToken(email), resetsAccount}, networkLimit("resets", c, resetsNetwork)}
}

func networkLimit(kind string, c Client, most int64) limit {
	return limit{kind + ":" + network(c.Address), most}
}

// network is the client's address, or of IPv6 the /64 that a single subscriber has. Clients without an address, as on
// a Unix socket, are one.
func network(address string) string {
	a, err := netip.ParseAddr(strings.Trim(address, "[]"))
	if err != nil {
		return ""
	}
	a = a.Unmap().WithZone("")
	if a.Is4() {
		return a.String()
	}
	p, err := a.Prefix(64)
	if err != nil {
		return ""
	}
	return p.String()
}

// take counts an attempt, or returns a fault TooFast that says how long to wait, and counts nothing.
func (s *Service) take(ctx context.Context, limits []limit) error {
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

// notJudged gives back an attempt that an error kept from being judged, and returns the error. Otherwise who asks again
// while many sign in, as the error says, would soon have no attempt left.
func (s *Service) notJudged(ctx context.Context, limits []limit, err error) error {
	failed := s.d.Update(context.WithoutCancel(ctx), func(tx *db.Tx) error { giveBack(ctx, tx, limits); return nil })
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
