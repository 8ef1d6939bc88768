// Package mail groups the packages that read and write email and speak its protocols. They implement SMTP, MIME, DKIM,
// DMARC, DNS, DANE, bounce reports and authentication results. The packages under internal/mail do not depend on teams
// or database rows.
//
// Packages under internal/mail may import each other and packages under internal/lib.
package mail
