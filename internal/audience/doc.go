// Package audience is the group of packages about the people whom a team writes to: contacts, their properties, topics
// and segments, the filters that select them, and CSV imports.
//
// These packages may import accounts and every group below it.
package audience
