// Package requestlog remembers the API requests of teams: what was asked, by whom, and what was answered.
//
// # Life of an entry
//
// [Service.Add] takes a request once its client has the answer, and puts it into a queue in memory. [Service.Run]
// takes secrets and file contents out of the bodies (see [Redact]), bounds them, and writes entries in batches.
// [Service.Sweep] deletes those that are older than the retention.
//
// # Invariants
//
// No secret reaches the database: bodies are redacted before they are written, and so are the path and the user agent.
// What waits is bounded by [queueBytes]. Bodies that are not JSON are not kept.
//
// # When it fails
//
// While the database refuses, batches are tried again and the queue grows. When it is full, Add waits for up to
// [patience]; then the entry is dropped and counted, and Run logs how many were. A clean stop writes everything that
// waits; a crash loses at most what waits: requests are never slower for the log's sake than patience, and an entry
// is not worth an fsync of its own.
//
// The package does not decide which requests are logged: who calls Add does.
package requestlog

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/fault"
	"github.com/postrider/postrider/internal/teams"
)

// Sizes of what is kept, in octets.
const (
	bodyMax   = 64 << 10 // of each body, as it is stored
	stringMax = 16 << 10 // of one string in a body; what is beyond is cut off
	// briefMax is stringMax of requests that succeeded. What they brought in can be retrieved by itself, and to store
	// each email twice would double what sending costs the disk.
	briefMax = 1 << 10
	pathMax  = 1000
	agentMax = 500
)

// Request is a request and its answer. Body and Answer are only lent: Add copies what it keeps.
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
}

// Entry is a request as it is remembered.
type Entry struct {
	ID        string
	TeamID    string
	Actor     teams.ActorRef
	RequestID string
	Method    string
	Endpoint  string // the path
	Status    int
	UserAgent string // empty when none was sent
	Duration  time.Duration
	CreatedAt time.Time

	// Of a single entry only: JSON, empty when there was none.
	RequestBody, ResponseBody string
}

// Filter says which entries are wanted. Its zero value wants all.
type Filter struct {
	Status    string    // a class such as 4xx, or a code such as 429
	Method    string    // in upper case
	Endpoint  string    // that the path begins with
	UserAgent string    // that the user agent has in it, in either case
	KeyID     string    // of the API key
	From, To  time.Time // from the one on, before the other; zero for no bound
}

// statuses returns the least and the greatest code that are wanted.
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
	methods := []string{"", http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}
	if !slices.Contains(methods, f.Method) {
		return fault.Invalidf("method", "The `method` parameter must be one of GET, POST, PUT, PATCH, DELETE and OPTIONS.")
	}
	// Nothing longer is stored, and engines bound the patterns that they compare with.
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
