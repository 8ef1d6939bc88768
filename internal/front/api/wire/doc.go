// Package wire is the framework of the JSON API: it builds HTTP handlers and the OpenAPI document from typed functions.
//
// # Shape
//
// An [Operation] is a method, a path and a function from a request type to a response type. [Endpoint] decodes the
// request, calls the function and encodes the response. [Streaming] is for responses that are written while they are
// made, [Upload] for forms with a file. [Server] routes requests to operations and generates the OpenAPI document and
// the documentation page from the same types.
//
// # Order
//
// A request passes these checks in this order: User-Agent, API key, suspension of the team, rate limit, route, scope,
// JSON, and then the operation's own rules (API reference section 4.2).
//
// # Types of requests and responses
//
// Lists in request types are [Array], [Strings] or [Object], each with a [Limit]; Endpoint panics if a list has none.
// [Optional] distinguishes null from absent. [Immutable] and [ReadOnly] are fields that a PATCH request cannot change.
// Times in responses are [DBTime] or [ISOTime], and lists are made by [ListOf] or [FullList]. A type named ...Wire,
// ...In or ...Out has its name without that suffix in the document: emailWire is Email and sendEmailIn is
// SendEmailRequest.
//
// # Invariants
//
// All errors have the same JSON body, and errors.go alone maps faults to status codes and names. The decoder accepts
// JSON as real clients send it: null for absent, unknown fields and empty bodies. Paths may have duplicate slashes.
// Lists in requests are limited while they are decoded. Teams share the memory for large bodies and responses.
//
// # When it fails
//
// An error that is not a fault is answered with status 500 and without its cause, which is logged. A panic ends only
// its own request.
//
// # What it does not do
//
// The package has no operation and no rules of a resource. From the packages of resources it imports only teams, for
// the actor of a request.
package wire
