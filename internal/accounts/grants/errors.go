package grants

import "fmt"

// Code is an error code defined by the OAuth standards.
type Code string

// Error codes from RFC 6749 sections 4.1.2.1 and 5.2, RFC 7009 section 2.2.1, RFC 7591 section 3.2.2 and RFC 8707
// section 2.
const (
	InvalidRequest          Code = "invalid_request"
	InvalidClient           Code = "invalid_client"
	InvalidGrant            Code = "invalid_grant"
	InvalidScope            Code = "invalid_scope"
	InvalidTarget           Code = "invalid_target"
	InvalidRedirectURI      Code = "invalid_redirect_uri"
	InvalidMetadata         Code = "invalid_client_metadata"
	AccessDenied            Code = "access_denied"
	UnauthorizedClient      Code = "unauthorized_client"
	UnsupportedGrantType    Code = "unsupported_grant_type"
	UnsupportedResponseType Code = "unsupported_response_type"
	UnsupportedTokenType    Code = "unsupported_token_type"
	TooManyRequests         Code = "too_many_requests" // API reference section 24.2
)

// Error says why an OAuth client's request was refused. The text of an Error is meant for the developers of the OAuth
// client. The text contains only printable ASCII characters except quotes and backslashes (RFC 6749 section 5.2).
type Error struct {
	Code Code
	Text string
}

// Error returns the OAuth error code and the text.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Text }

func refuse(c Code, format string, args ...any) error {
	return &Error{Code: c, Text: fmt.Sprintf(format, args...)}
}
