// Package front is the group of packages with external interfaces: the JSON API, MCP, OAuth, the web pages, links in
// emails, and SMTP submission. Each package translates between its protocol and the services of lower packages. The
// packages contain no business rules and no SQL.
//
// Packages in front may import packages of every lower group. Among each other, packages in front may import only web
// and api/wire.
package front
