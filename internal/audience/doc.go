// Package audience is the group of packages about the recipients of a team's emails: contacts, their properties, topics
// and segments, the filters that select them, and CSV imports.
//
// Packages of this group may import the group accounts and every group below accounts.
package audience
