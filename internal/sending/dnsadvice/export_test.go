package dnsadvice

import (
	"context"

	"github.com/postrider/postrider/internal/mail/bimi"
)

// CheckImageAt fetches and checks an image over HTTP, which records cannot name.
func (b *BIMI) CheckImageAt(ctx context.Context, team, url string) []Problem {
	c := &bimiCheck{BIMI: b, team: team, name: "default._bimi.acme.com"}
	packed, err := c.fetch(ctx, url, bimi.ImageMax)
	c.image(url, packed, err)
	return c.problems
}

// Discover is discover.
var Discover = discover
