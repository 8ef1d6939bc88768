// Package wire is the framework of the JSON API: it builds HTTP handlers and the OpenAPI document from typed functions.
//
// # Shape
//
// An [Operation] is a method, a path and a function from a request type to a response type. [Endpoint] decodes the
// request, calls the function and encodes the response. [Streaming] is for responses that are generated while they are
// sent, and [Upload] is for forms with a file. [Server] routes requests to operations and generates the OpenAPI
// document and the documentation page from the same types.
//
// # Order
//
// The checks on a request run in this order: User-Agent, API key, team suspension, rate limit, route, scope, JSON, and
// then the operation's own rules (API reference section 4.2).
//
// # Types of requests and responses
//
// Lists in request types are [Array], [Strings] or [Object], each with a [Limit]. Endpoint panics if a list has no
// limit. [Optional] distinguishes null from absent. [Immutable] and [ReadOnly] are fields that a PATCH request cannot
// change. Times in responses have the type [DBTime] or [ISOTime]. [ListOf] and [FullList] create lists. Type names lose
// the suffix Wire, In or Out in the OpenAPI document: emailWire is called Email, and sendEmailIn is called
// SendEmailRequest.
//
// # Invariants
//
// All errors have the same JSON body, and only errors.go maps faults to status codes and names. Because existing
// clients depend on it, the decoder accepts unknown fields, empty bodies, and null in place of absent fields. Paths may
// have duplicate slashes. Limits on the length of lists in requests are enforced during decoding. Teams share the
// memory for large request bodies and responses.
//
// # Failures
//
// An error that is not a fault causes a response with status 500. The cause of the error is logged but not included in
// the response. A panic ends only the request that caused it.
//
// # Out of scope
//
// Package wire contains no API operations and no resource-specific rules. The only resource package that package wire
// imports is teams, which defines the actor of a request.
package wire
