// Package mail groups the packages that implement the protocols and formats of email: SMTP, MIME, DKIM, DNS, bounce
// reports, authentication results. The packages of this group do not depend on teams or database rows.
//
// These packages may import each other and packages of internal/lib.
package mail
