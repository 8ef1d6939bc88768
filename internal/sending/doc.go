// Package sending groups the packages that accept and send emails. They handle the acceptance of emails, content and
// templates, domains, suppressions, approvals, delivery over SMTP, tracking, and metrics.
//
// The sending packages may import the package group audience and every group below it.
package sending
