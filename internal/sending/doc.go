// Package sending is the group of packages on an email's way out: accepting it, its content and templates, domains,
// suppressions, approvals, delivery by SMTP, tracking, and metrics.
//
// These packages may import audience and every group below it.
package sending
