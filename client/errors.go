package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// maxErrorBody is the maximum number of bytes that are read of an error response.
const maxErrorBody = 64 << 10

// Error is an error response of the API.
type Error struct {
	Status  int    // status code of the response
	Name    string // such as validation_error; empty if the response is not from the API but, for example, from a proxy
	Message string // what is wrong and how to fix it
	// Field is the field or parameter of the request that the message is about, such as name or capabilities.sending.
	// It is the first name in backticks in the message of a response with status 400 or 422, and "" if there is none.
	Field      string
	RequestID  string        // the X-Request-Id header, which the operator can find in the log
	RetryAfter time.Duration // how long to wait before the next request; 0 if the response does not say

	Method, Path string // the request
}

// Error returns the request, the status, the name and the message.
func (e *Error) Error() string {
	text := fmt.Sprintf("%s %s: %d", e.Method, e.Path, e.Status)
	for _, part := range []string{e.Name, e.Message} {
		if part != "" {
			text += ": " + part
		}
	}
	return text
}

// IsNotFound reports whether an error says that a resource does not exist.
func IsNotFound(err error) bool { return hasStatus(err, http.StatusNotFound) }

// IsRateLimited reports whether an error says that there were too many requests, or that a quota is used up.
func IsRateLimited(err error) bool { return hasStatus(err, http.StatusTooManyRequests) }

func hasStatus(err error, status int) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == status
}

// namedField matches the name of a field in a message.
var namedField = regexp.MustCompile("`([A-Za-z_][A-Za-z0-9_.\\[\\]-]*)`")

// readError reads an error response and closes its body.
func readError(r *http.Request, response *http.Response) *Error {
	defer response.Body.Close()
	e := &Error{Status: response.StatusCode, RequestID: response.Header.Get("X-Request-Id"),
		RetryAfter: retryAfter(response.Header.Get("Retry-After"), time.Now()), Method: r.Method, Path: r.URL.Path}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxErrorBody))
	var body struct{ Name, Message string }
	if response.StatusCode/100 == 3 {
		e.Message = "the server redirects the request, and the client follows no redirects. " + newAddress(response)
		return e
	}
	if err != nil || json.Unmarshal(text, &body) != nil || body.Message == "" {
		e.Message = "the response is not from the API: " + strings.TrimSpace(string(text[:min(len(text), 200)]))
		return e
	}
	e.Name, e.Message = body.Name, body.Message
	if e.Status == http.StatusUnprocessableEntity || e.Status == http.StatusBadRequest {
		if m := namedField.FindStringSubmatch(e.Message); m != nil {
			e.Field = m[1]
		}
	}
	return e
}

// newAddress returns a sentence about the address that a redirect names. It leaves out the query and the password of
// the address, because they may be secret.
func newAddress(response *http.Response) string {
	u, err := response.Location()
	if err != nil {
		return "Check the URL of the API."
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return fmt.Sprintf("It names %q. Check the URL of the API, and whether it begins with http:// or https://.", u)
}

// retryAfter returns the wait in a Retry-After header, which is a number of seconds or a date (RFC 9110, section
// 10.2.3).
func retryAfter(text string, now time.Time) time.Duration {
	if n, err := strconv.Atoi(text); err == nil && n > 0 {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}
