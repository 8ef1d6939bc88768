// Package mail is the group of packages that speak the protocols and formats of email: SMTP, MIME, DKIM, DNS, bounce
// reports, authentication results. Packages of this group know nothing of teams or database rows.
//
// These packages may import each other and lib.
package mail
