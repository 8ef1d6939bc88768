// Package tokens makes and reads the signed tokens of sent emails: their return paths, the field that proves a
// complaint, and their tracked links and pixels.
//
// A token carries the id of its email and a MAC by the keys of the installation. Tokens are not stored: reading one
// needs the keys and no database, and it does not say whether the email still exists.
package tokens
