package emails

import (
	"strings"

	"github.com/postrider/postrider/internal/mail/message"
)

// isBulk reports whether a header marks bulk mail. These header fields mark bulk mail: List-Id (RFC 2919),
// List-Unsubscribe (RFC 2369), and Precedence with the value bulk, list or junk (RFC 3834 section 3.1.8).
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
