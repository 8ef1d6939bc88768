// Package teams has the teams, to whom everything belongs, and their API keys.
package teams

import "time"

// Permission says what an API key may do.
type Permission string

const (
	FullAccess    Permission = "full_access"
	SendingAccess Permission = "sending_access" // only what sends email
)

// Principal is who makes a request: a key of a team.
type Principal struct {
	TeamID     string
	KeyID      string
	Permission Permission
	DomainID   string // when not empty, the only domain that the key may send from
	RateLimit  int    // requests a second of the team; 0 takes the configuration's
	Suspended  bool
}

// Team is a team.
type Team struct {
	ID        string
	Name      string
	Email     string
	RateLimit int
	Suspended bool
	CreatedAt time.Time
}

// Key is an API key. Its token is not kept, only a hash of it.
type Key struct {
	ID         string
	TeamID     string
	Name       string
	Hint       string // what people may see of the token
	Permission Permission
	DomainID   string
	CreatedAt  time.Time
	LastUsedAt time.Time // zero before the first use; a few seconds behind
}
