// Package tokens creates and verifies the signed tokens in sent emails: return paths, the header field that
// authenticates complaints, and tracked links and pixels.
//
// A token contains the id of its email and a MAC computed with the installation's keys. Tokens are not stored. A token
// can be verified with only the keys and without a database, so a valid token does not prove that the email still
// exists.
package tokens
