// Package front is the group of packages that clients and people talk to: the JSON API, MCP, OAuth, the web pages,
// links in emails, and SMTP submission. Each package translates between its protocol and the services below, and holds
// no rules and no SQL.
//
// These packages may import every lower group. The packages of this group import each other only for web and api/wire.
package front
