package emails

import (
	"strings"

	"github.com/postrider/postrider/internal/mail/message"
)

// isBulk says by an email's header whether it is one of many: a mailing list's (List-Id, RFC 2919), one that can be
// unsubscribed from (List-Unsubscribe, RFC 2369), or one that says so itself (Precedence, RFC 3834 section 3.1.8).
func isBulk(header []message.Field) bool {
	for _, f := range header {
		switch strings.ToLower(f.Name) {
		case "list-id", "list-unsubscribe":
			return true
		case "precedence":
			switch strings.ToLower(strings.TrimSpace(f.Value)) {
			case "bulk", "list", "junk":
				return true
			}
		}
	}
	return false
}
