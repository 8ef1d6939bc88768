package delivery

import (
	"strings"

	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/tokens"
)

// complaintLoop returns what bulk mail tells mailbox providers about complaints (RFC 9477). Providers follow it only if
// a signature covers it whose domain is that of the address or a parent of it. The operator's address is used if this
// holds for the sender's domain, and otherwise the address at the domain's return-path host, whose mail comes to this
// installation.
func (s *Service) complaintLoop(t *try, from *domains.Signing) emails.ComplaintLoop {
	if s.c.ComplaintAddress == "" || !t.d.Bulk || s.c.Unsigned || len(from.Signers) == 0 || s.isSandbox(from.Name) {
		return emails.ComplaintLoop{}
	}
	_, host, _ := strings.Cut(s.c.ComplaintAddress, "@")
	if isWithin(host, from.Name) {
		return emails.ComplaintLoop{Address: s.c.ComplaintAddress, Token: t.token}
	}
	if !isWithin(from.ReturnPathHost, from.Name) {
		return emails.ComplaintLoop{}
	}
	return emails.ComplaintLoop{Address: tokens.ComplaintsLocal + "@" + from.ReturnPathHost, Token: t.token}
}

// isWithin reports whether a host is a domain or is below it. Both are in lower case.
func isWithin(host, domain string) bool {
	rest, ok := strings.CutSuffix(host, domain)
	return ok && domain != "" && (rest == "" || len(rest) > 1 && rest[len(rest)-1] == '.')
}
