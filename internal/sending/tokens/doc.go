// Package tokens creates and verifies the signed tokens in sent emails. Tokens are part of return paths, of the header
// field that authenticates complaints, and of tracked links and pixels.
//
// A token contains the short id of its team, the id of its email and a MAC computed with the installation's keys.
// Tokens are not stored. A token is verified with the keys alone, without the database, so a valid token does not prove
// that the email still exists.
package tokens
