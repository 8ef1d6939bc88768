// Package requestlog stores the API requests of teams: each request with its actor and its response.
//
// # Life of an entry
//
// [Service.Add] receives a request after the client has received the response. Add removes secrets and file contents
// from the bodies (see [Redact]), limits their size, and appends the entry to a queue in memory. The method
// [Service.Run] writes entries in batches. Package retention deletes entries that are older than the retention
// period, with [Service.RemoveBefore] or with their partition.
//
// # Invariants
//
// Secrets that [Redact] and [MaskSecrets] recognize are stored neither in the queue nor in the database. Secrets are
// removed from the bodies, the path and the user agent. Bodies of requests about webhooks, automations and forwarding
// rules are stored without header values and without the queries of URLs. Bodies of requests about approvals are not
// stored. The queue holds at most [queueBytes], which teams share as package fairshare describes. Bodies that are not
// JSON are not stored.
//
// The log does not store the HTML and the text of an email that a request created, but a reference to the email's own
// bodies. [Service.Get] fills in the same strings that the log would contain. Once the email's content is deleted, they
// are null. Strings that are not the same as the email's bodies are stored in the log.
//
// # Failures
//
// While the database accepts no writes, batches are retried and the queue grows in memory. When a team has used up its
// share of the queue, Add waits for up to [addWait] and then discards the entry. Run logs the number of discarded
// entries. A clean shutdown writes the whole queue, within [drainTimeout]. A crash loses at most the entries in the
// queue. The request log delays a request by at most addWait; several entries share one fsync.
//
// # Out of scope
//
// Package requestlog does not decide which requests to log; the callers of Add do.
package requestlog

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
)

// Limits on the stored values, in bytes.
const (
	bodyMax   = 64 << 10 // maximum size of each stored body in bytes
	stringMax = 16 << 10 // maximum length of each string in a body; longer strings are cut
	// successMax replaces stringMax for successful requests. Objects that a successful request created can be read
	// through other operations, and storing each email twice would double the disk writes of sending.
	successMax = 1 << 10
	pathMax    = 1000
	agentMax   = 500
)

// Request is an API request and its response. Add keeps no reference to the slices Body and Answer.
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
	LongAnswer   int64 // length in bytes of a response body that is too long for Answer

	// Emails are the emails that the request created. If the request contains several emails, Emails has an element for
	// each of them, in the same order.
	Emails []StoredEmail
}

// Entry is a request in the log.
type Entry struct {
	ID        string
	TeamID    string
	Actor     teams.ActorRef
	RequestID string
	Method    string
	Endpoint  string // the path
	Status    int
	UserAgent string // empty if the client sent no such header field
	Duration  time.Duration
	CreatedAt time.Time

	// JSON, or empty if there was no JSON body. Only Get returns the request and response bodies.
	RequestBody, ResponseBody string
}

// storedEntry is an entry whose request body may refer to bodies of emails.
type storedEntry struct {
	Entry
	emailIDs string // separated by commas; "" if the request body has no references
}

// Filter selects entries. The zero Filter selects all entries.
type Filter struct {
	Status    string    // a status class such as 4xx, or a status code such as 429
	Method    string    // in upper case
	Endpoint  string    // prefix of the request path
	UserAgent string    // part of the user agent; case-insensitive
	KeyID     string    // id of the API key
	From, To  time.Time // From is inclusive and To is exclusive; the zero time means no limit
}

// statuses returns the lowest and the highest selected status code.
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
	// Longer filter values are rejected, because no stored value is longer and databases limit the length of patterns.
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
