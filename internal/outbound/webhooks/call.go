package webhooks

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/netguard"
	"github.com/postrider/postrider/internal/platform/signing"
)

// Limits on the header fields in a call.
const (
	MaxCallHeaders = 20
	maxHeaderName  = 100  // bytes
	maxHeaderValue = 2000 // bytes
)

// Call is [Service.CallSigned] with the keys that all calls of the team's automations share, which CallSecret returns.
func (s *Service) Call(ctx context.Context, teamID, id, url string, headers map[string]string, body []byte) (
	status int, err error) {
	return s.CallSigned(ctx, teamID, id, url, headers, body, signing.TeamKeys(s.p.Keys, teamID)...)
}

// CallSigned posts a JSON body on behalf of a team to a URL that a user configured. CallSigned returns the HTTP status
// of the response, including error statuses. The same protections as for webhook endpoints apply: CallSigned checks
// the address when it connects and does not follow redirects. The time limit is Config.Timeout, and CallSigned reads
// at most about 64 KB of the response. CallSigned signs the body like a webhook message, using the given message id
// and keys. Callers must use the same message id for all attempts.
//
// If the team has too many connections to the address, or if our own DNS servers do not work, CallSigned returns an
// Unavailable fault. In this case, it made no request, and the receiver is not to blame. If the address is not allowed,
// CallSigned returns an Invalid fault. Other errors, except those from ctx, briefly state why there was no response.
// Errors from CallSigned do not include the URL, which may contain a secret.
func (s *Service) CallSigned(ctx context.Context, teamID, id, url string, headers map[string]string, body []byte,
	keys ...[]byte) (status int, err error) {
	r, err := http.NewRequestWithContext(forTeam(ctx, teamID), http.MethodPost, url, strings.NewReader(string(body)))
	if err != nil {
		return 0, errors.New("the URL cannot be read")
	}
	for name, value := range headers {
		r.Header.Set(name, value)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", s.c.UserAgent)
	signing.Sign(r.Header, id, s.p.DB.Now(), string(body), keys...)
	resp, err := s.client.Do(r)
	if err == nil {
		status = resp.StatusCode
		_, err = io.CopyN(io.Discard, resp.Body, readMax)
		resp.Body.Close()
		// EOF from CopyN only means that the body is shorter than readMax. EOF from Do means that there was no
		// response.
		if errors.Is(err, io.EOF) {
			err = nil
		}
	}
	switch {
	case err == nil:
		return status, nil
	case errors.Is(err, io.EOF):
		return 0, errors.New("the host closed the connection without an answer")
	case errors.Is(err, errCrowded):
		return 0, fault.New(fault.Unavailable, "", "The team has many requests to the same address under way. Try again in "+
			"a moment.").Because(err)
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case fault.IsOutage(err):
		return 0, dnsAway(err)
	case errors.Is(err, netguard.ErrRefused):
		return 0, fault.Invalidf("url", "The address may not be called, because it is not public.").Because(err)
	}
	return 0, errors.New(explain(err))
}

// CallSecret returns the secret with which receivers verify the calls of a team's automations, in the format of webhook
// secrets. The secret is derived from the master key and changes only with the master key. After a rotation of the
// master key, calls are also signed with the earlier secrets, so that receivers need not change theirs at once.
func (s *Service) CallSecret(teamID string) string {
	return signing.Encode(signing.TeamKeys(s.p.Keys, teamID)[0])
}

// CheckURL validates the URL in a request field and returns its normalized form. CheckURL rejects URLs that are not
// allowed for webhook endpoints.
func (s *Service) CheckURL(field, text string) (string, error) {
	u, err := s.p.Guard.CheckURL(text)
	if err != nil {
		what := strings.TrimSuffix(err.Error(), ": "+netguard.ErrRefused.Error())
		return "", fault.Invalidf(field, "The `%s` field %s.", field, what).Because(err)
	}
	if u.Scheme != "https" && !s.c.AllowHTTP {
		return "", fault.Invalidf(field, "The `%s` field must begin with https://.", field)
	}
	return u.String(), nil
}

// ownHeaders lists the header fields, in lower case, that users cannot set: those that Call sets, and those that
// control the connection.
var ownHeaders = []string{"content-type", "user-agent", "host", "content-length", "content-encoding",
	"transfer-encoding", "connection", "keep-alive", "proxy-connection", "te", "trailer", "upgrade", "expect"}

// CheckHeaders rejects header fields that are not allowed in a call. The error names the given request field.
func CheckHeaders(field string, headers map[string]string) error {
	if len(headers) > MaxCallHeaders {
		return fault.Invalidf(field, "The `%s` field has %d headers; the limit is %d.", field, len(headers), MaxCallHeaders)
	}
	for name, value := range headers {
		lower := strings.ToLower(name)
		switch {
		case !httpguts.ValidHeaderFieldName(name) || len(name) > maxHeaderName:
			return fault.Invalidf(field, "The `%s` field has %.50q, which is no name of an HTTP header of at most %d "+
				"characters.", field, name, maxHeaderName)
		case slices.Contains(ownHeaders, lower) || strings.HasPrefix(lower, "webhook-") || strings.HasPrefix(lower, "svix-"):
			return fault.Invalidf(field, "The `%s` field has `%s`, which Postrider sets itself. Leave it out.", field, name)
		case !httpguts.ValidHeaderFieldValue(value) || len(value) > maxHeaderValue:
			return fault.Invalidf(field, "The value of `%s` in the `%s` field must have at most %d characters, without line "+
				"breaks and other control characters.", name, field, maxHeaderValue)
		}
	}
	return nil
}
