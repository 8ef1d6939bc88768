// Package front groups the packages that talk to clients and browsers. They provide the JSON API, MCP, OAuth, the web
// pages, links in emails, and SMTP submission. Each package translates between its protocol and the services in lower
// packages. The packages contain no business rules and no SQL.
//
// Packages in front may import packages from every lower group. The only packages in front that other packages in front
// may import are web and api/wire.
package front
