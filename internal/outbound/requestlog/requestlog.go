// Package requestlog stores the API requests of teams: the request, its actor, and the response.
//
// # Life of an entry
//
// [Service.Add] takes a request after its client has received the response. It removes secrets and file contents from
// the bodies (see [Redact]), limits their size, and puts the entry into a queue in memory. [Service.Run] writes entries
// in batches. [Service.Sweep] deletes entries that are older than the retention period.
//
// # Invariants
//
// Secrets that [Redact] and [MaskSecrets] recognize reach neither the queue nor the database. Secrets are removed from
// bodies, the path and the user agent. The queue is limited to [queueBytes], which teams share as package fairshare
// describes. Bodies that are not JSON are not stored.
//
// # When it fails
//
// While the database accepts no writes, batches are retried and the queue grows. When a team has used its share of the
// queue, Add waits for up to [addWait]; then it drops the entry. Run logs the number of dropped entries. A clean stop
// writes the whole queue, within [drainTimeout]. A crash loses at most the queue. The log delays a request by at most
// addWait, and an entry does not cost an fsync of its own.
//
// # What it does not do
//
// The package does not decide which requests are logged: the callers of Add do.
package requestlog

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
)

// Limits of what is stored, in bytes.
const (
	bodyMax   = 64 << 10 // limit of each stored body
	stringMax = 16 << 10 // limit of one string in a body; the rest is cut off
	// successMax is stringMax for successful requests. Other operations can return what such a request created, and
	// storing each email twice would double the disk writes of sending.
	successMax = 1 << 10
	pathMax    = 1000
	agentMax   = 500
)

// Request is a request and its response. Add keeps no reference to Body and Answer.
type Request struct {
	TeamID       string
	Actor        teams.ActorRef
	RequestID    string
	Method, Path string
	UserAgent    string
	Status       int
	Duration     time.Duration
	ContentType  string
	Body, Answer []byte
	LongAnswer   int64 // length in bytes of an answer that is too long for Answer
}

// Entry is a logged request.
type Entry struct {
	ID        string
	TeamID    string
	Actor     teams.ActorRef
	RequestID string
	Method    string
	Endpoint  string // the path
	Status    int
	UserAgent string // empty if the client sent none
	Duration  time.Duration
	CreatedAt time.Time

	// JSON, or empty if there was none. Only Get returns the bodies.
	RequestBody, ResponseBody string
}

// Filter selects entries. Its zero value selects all.
type Filter struct {
	Status    string    // a class such as 4xx, or a code such as 429
	Method    string    // in upper case
	Endpoint  string    // a prefix of the path
	UserAgent string    // a part of the user agent; case is ignored
	KeyID     string    // id of the API key
	From, To  time.Time // From is inclusive, To exclusive; zero means no limit
}

// statuses returns the smallest and the largest selected status code.
func (f Filter) statuses() (low, high int, err error) {
	s := strings.ToLower(f.Status)
	switch {
	case s == "":
		return 0, 999, nil
	case len(s) == 3 && s[0] >= '1' && s[0] <= '5' && s[1:] == "xx":
		low = int(s[0]-'0') * 100
		return low, low + 99, nil
	case len(s) == 3 && s[0] >= '1' && s[0] <= '5' && digit(s[1]) && digit(s[2]):
		low = int(s[0]-'0')*100 + int(s[1]-'0')*10 + int(s[2]-'0')
		return low, low, nil
	}
	return 0, 0, fault.Invalidf("status", "The `status` parameter must be a class such as `4xx` or a code such as `429`.")
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

func (f Filter) check() error {
	methods := []string{"", http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodOptions}
	if !slices.Contains(methods, f.Method) {
		return fault.Invalidf("method", "The `method` parameter must be one of GET, POST, PUT, PATCH, DELETE and OPTIONS.")
	}
	// Stored values are no longer than this, and databases limit the length of patterns.
	if len(f.Endpoint) > pathMax {
		return fault.Invalidf("endpoint", "The `endpoint` parameter is longer than %d octets.", pathMax)
	}
	if len(f.UserAgent) > agentMax {
		return fault.Invalidf("user_agent", "The `user_agent` parameter is longer than %d octets.", agentMax)
	}
	if !f.From.IsZero() && !f.To.IsZero() && f.To.Before(f.From) {
		return fault.Invalidf("from", "The `from` parameter must not be after `to`.")
	}
	return nil
}
