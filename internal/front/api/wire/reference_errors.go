package wire

import (
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
)

// cause returns an error of the kind k with a cause. The status and the name come from the table of errors.
func cause(k fault.Kind, text string) ReferenceError {
	x := errorNames[k]
	return ReferenceError{x.status, x.name, text}
}

// errorsOf returns the errors that an operation may answer with: those that follow from its type, and its own.
func (s *Server) errorsOf(o *Operation) []ReferenceError {
	all := slices.Concat(s.actorErrors(o), s.requestErrors(o), s.text(o).Errors, []ReferenceError{
		cause(fault.Internal, "The server failed. The operator finds the reason by the x-request-id of the response."),
		cause(fault.Unavailable, "The server is overloaded, or its database cannot be reached. Try again after the seconds "+
			"in Retry-After.")})
	slices.SortStableFunc(all, byStatus)
	return all
}

// actorErrors returns the errors that concern the API key or the OAuth token.
func (s *Server) actorErrors(o *Operation) (all []ReferenceError) {
	if o.Scope == Open {
		return nil
	}
	all = append(all,
		cause(fault.NoCredential, "The request has no API key."),
		cause(fault.BadCredential, "The API key or the OAuth token is unknown, expired or revoked."))
	if !teams.SendingAccess.Scopes().Has(o.Scope) {
		all = append(all, cause(fault.Restricted, "The API key has sending_access, which does not include this operation."))
	}
	lacks := "The OAuth token or the user's role lacks the scope " + strings.Join(o.scopes(), " or ") + "."
	if o.RefusesApps {
		lacks = "The user's role lacks the " + scopeList(o.scopes()) + ", or the request has an OAuth token."
	}
	all = append(all, cause(fault.OutOfScope, lacks))
	if !o.WhileSuspended {
		all = append(all, cause(fault.Suspended, "The team is suspended."))
	}
	return append(all, cause(fault.TooFast, "The team has sent more requests in this second than its rate limit allows. "+
		"Try again after the seconds in Retry-After."))
}

// requestErrors returns the errors that concern the form of the request.
func (s *Server) requestErrors(o *Operation) (all []ReferenceError) {
	ids, names := false, false
	for _, m := range pathParam.FindAllStringSubmatch(o.Path, -1) {
		ids, names = ids || isID(m[1]), true
	}
	if ids {
		all = append(all, cause(fault.BadID, "An ID in the path is not a UUID."))
	}
	if names {
		all = append(all, cause(fault.NotFound, "The team has no resource with this ID or name."))
	}
	switch {
	case o.form:
		all = append(all, cause(fault.Malformed, "The body is not a form, or it breaks off."))
	case o.TakesBody():
		all = append(all, cause(fault.Malformed, "The body is not valid JSON, or it is too large."))
	}
	switch {
	case o.TakesBody():
		all = append(all, cause(fault.Invalid, "A field has the wrong type or breaks its limits. The message names the "+
			"field."))
	case len(o.Query) > 0:
		all = append(all, cause(fault.Invalid, "A query parameter has a value that is not allowed. The message names the "+
			"parameter."))
	}
	if o.TakesBody() && s.requires(o) {
		all = append(all, cause(fault.Missing, "A required field is missing. The message names the field."))
	}
	for _, name := range o.Query {
		if s.opts.Description.QueryParam(o, name).Required {
			all = append(all, cause(fault.MissingParameter, "The query parameter "+name+" is missing."))
		}
	}
	for _, h := range s.opts.Description.RequestHeaders(o) {
		if h.Name == idempotencyHeader {
			all = append(all,
				cause(fault.BadIdempotencyKey, "The idempotency key is empty or has more than 256 characters."),
				cause(fault.IdempotencyMismatch, "The idempotency key was used within 24 hours for another body."),
				cause(fault.InFlight, "A request with this idempotency key has not ended yet."))
		}
	}
	return all
}

// isID reports whether a path parameter is a UUID.
func isID(name string) bool {
	return len(name) > 3 && name[len(name)-3:] == "_id" && name != "webhook_event_id"
}

// AllErrors returns the status and the name of each error that the API knows.
func AllErrors() (all []ReferenceError) {
	for _, x := range errorNames {
		all = append(all, ReferenceError{Status: x.status, Name: x.name})
	}
	slices.SortFunc(all, byStatus)
	return slices.Compact(all)
}
