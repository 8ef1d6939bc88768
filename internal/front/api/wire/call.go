package wire

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/erasure"
	"github.com/postrider/postrider/internal/platform/page"
)

// Call is one request to an operation.
type Call struct {
	teams.Actor
	Request   *http.Request
	Header    http.Header // header of the response
	Status    int         // status of a successful response; operations may change it
	Operation *Operation
	// Unaudited means that a read operation returned nothing that the audit log should mention. Operations set it.
	Unaudited bool

	server        *Server
	w             *recorder
	body          []byte
	query         url.Values
	loggedPath    string // replaces the path of the request in the logs, unless it is ""
	source        func() // releases the memory for the data that the response is built from; may be nil
	responseBytes int64  // memory reserved for the response
}

// Body returns the request's body, which must not be changed. Body returns nil for uploads.
func (c *Call) Body() []byte { return c.body }

// RecordEmails sets the emails that the request created; see [RequestRecord].
func (c *Call) RecordEmails(all []StoredEmail) { c.w.emails = all }

// These limits apply to every query string. Each operation also limits the values of its own parameters.
const (
	maxParameters     = 1000
	maxParameterBytes = 8 << 10 // maximum length of a parameter value; 100 IDs have fewer than 4,000 bytes
)

// readURL parses the query string. If the path or any parameter contains a string that the database cannot store,
// readURL returns an error, even if no operation reads that parameter.
func readURL(u *url.URL) (url.Values, error) {
	if !isText(u.Path) {
		return nil, fault.New(fault.BadID, "", "The path must be UTF-8 text without NUL characters.")
	}
	if u.RawQuery == "" {
		return nil, nil
	}
	if strings.Count(u.RawQuery, "&") >= maxParameters {
		return nil, fault.Invalidf("", "The query has more than %d parameters.", maxParameters)
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, fault.Invalidf("",
			"The query cannot be read: write a percent sign as %%25 and a semicolon as %%3B.").Because(err)
	}
	for name, values := range q {
		if len(name) > maxParameterBytes || !isText(name) {
			return nil, fault.Invalidf("", "The names of parameters must be short UTF-8 text without NUL characters.")
		}
		for _, v := range values {
			switch {
			case !isText(v):
				return nil, fault.Invalidf(name, "The `%s` parameter must be UTF-8 text without NUL characters.", name)
			case len(v) > maxParameterBytes:
				return nil, fault.Invalidf(name, "The `%s` parameter is longer than %d octets.", name, maxParameterBytes)
			}
		}
	}
	return q, nil
}

func isText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

// IsText reports whether a string, such as a header value or a parameter, is UTF-8 text that the database can store.
func IsText(s string) bool { return isText(s) }

// Param returns a path parameter after percent-decoding. A plus sign in a path parameter is not decoded as a space.
func (c *Call) Param(name string) string {
	text := chi.URLParam(c.Request, name)
	if c.Request.URL.RawPath == "" {
		return text // the router matched the decoded path
	}
	if decoded, err := url.PathUnescape(text); err == nil {
		return decoded
	}
	return text
}

// HideAddress masks an email address in the path before the path is logged.
func (c *Call) HideAddress(address string) {
	if a, err := erasure.Parse(address); err == nil {
		c.loggedPath = a.Replace(c.Request.URL.Path)
	}
}

// ID returns a path parameter in lower case, or an error if it is not a valid ID.
func (c *Call) ID(name string) (string, error) {
	text := c.Param(name)
	if !id.Valid(text) {
		return "", fault.New(fault.BadID, name, "The `%s` must be a valid UUID.", name)
	}
	return strings.ToLower(text), nil
}

// Query returns the query parameters. Operations ignore unknown query parameters;
// see [WarningHeader].
func (c *Call) Query() url.Values { return c.query }

// Page reads the pagination parameters "limit", "after" and "before" for a list whose cursors are UUIDs. If the request
// does not set a limit, defaultLimit applies; 0 means all items.
func (c *Call) Page(defaultLimit int) (page.Page, error) {
	p, err := c.OpaquePage(defaultLimit)
	if err != nil {
		return p, err
	}
	q := c.Query()
	p.After, p.Before = strings.ToLower(p.After), strings.ToLower(p.Before)
	for _, name := range [...]string{"after", "before"} {
		if q.Has(name) && !id.Valid(q.Get(name)) {
			return p, badCursor(name)
		}
	}
	return p, nil
}

// OpaquePage is like Page, but for lists whose cursors are not UUIDs.
func (c *Call) OpaquePage(defaultLimit int) (page.Page, error) {
	q := c.Query()
	p := page.Page{Limit: defaultLimit, After: q.Get("after"), Before: q.Get("before")}
	if q.Has("limit") {
		n, err := strconv.Atoi(q.Get("limit"))
		if err != nil || n < 1 || n > 100 {
			return p, fault.Invalidf("limit", "The `limit` parameter must be a number from 1 to 100.")
		}
		p.Limit = n
	}
	if q.Has("after") && q.Has("before") {
		return p, fault.Invalidf("after", "The `after` and `before` parameters cannot be used together.")
	}
	for _, name := range [...]string{"after", "before"} {
		if q.Has(name) && q.Get(name) == "" {
			return p, badCursor(name)
		}
	}
	return p, nil
}

func badCursor(name string) error {
	return fault.Invalidf(name, "The `%s` parameter must be the id of an item: the pagination cursor is invalid.", name)
}

// auditEntry returns the audit log entry for the call.
func (c *Call) auditEntry() audit.Entry {
	a := &c.Operation.Audit
	e := audit.Entry{TeamID: c.TeamID, ActorKind: string(c.Kind), ActorID: c.Actor.ID, ActorName: c.Name,
		Action: a.Name, Address: clientIP(c.Request), UserAgent: c.Request.UserAgent(), RequestID: c.w.id}
	if a.Target != "" {
		// Only valid IDs are recorded, because a path may contain a contact's email address, which the audit log must
		// not contain.
		if text := c.Param(a.Target); id.Valid(text) {
			e.Target = strings.ToLower(text)
		}
	}
	return e
}
