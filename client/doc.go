// Package client calls the API of a Postrider installation from Go. It needs only the standard library.
//
// [New] returns a [Client], whose fields are the resources of the API:
//
//	c, err := client.New("https://mail.example.com", os.Getenv("POSTRIDER_API_KEY"))
//	…
//	sent, err := c.Emails.Send(ctx, client.SendEmail{
//		From: "Acme <hello@acme.example>", To: []string{"ada@example.org"}, Subject: "Hello", Text: new("Hello, Ada."),
//	})
//
// The files that end in _gen.go are generated from the OpenAPI document of the API. `make client` generates them again.
//
// # Requests
//
// Types such as [CreateDomain] describe new resources. A field with its zero value is left out if the API does not
// require the field. Pointers mark fields whose zero value has a meaning; new(false) makes one.
//
// Types such as [UpdateDomain] describe changes. Their optional fields are a [Field]: the zero value leaves the field
// as it is, [Set] changes it, and [Null] removes its value.
//
// # Lists
//
// Each list has a method that returns one page, such as List, and one that returns an iterator over all pages, such as
// All. An iterator yields an error once, as its last pair.
//
// # Errors
//
// If the API refuses a request, the error is an [*Error] with the status, the name and the message of the response. Use
// [errors.AsType] or [IsNotFound] to examine it. All other errors mean that no complete response arrived.
//
// # Retries
//
// A request is repeated up to three times, or as often as [WithRetries] says, in these cases:
//
//   - The rate limit refused the request, which therefore had no effect.
//   - The response has status 502, 503 or 504, or no response arrived. Only GET requests and requests with an
//     idempotency key are repeated in this case, because any other request may already have had its effect.
//
// The client waits as long as the Retry-After header says, or half a second, one second and two seconds. If the server
// asks for more than 30 seconds, the client returns the error instead.
//
// # What this package does not do
//
// Package client keeps no global state, logs nothing and reads no environment variables. It does not validate requests:
// the API does, and describes each problem in its error.
package client
