// Package tokens creates and verifies the signed tokens in sent emails: return paths, the header field that
// authenticates complaints, and tracked links and pixels.
//
// A token contains the id of its email and a MAC computed with the installation's keys. Tokens are not stored.
// Verifying a token requires only the keys and no database, so a valid token does not prove that the email still
// exists.
package tokens
