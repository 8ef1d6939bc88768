package config

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"

	"github.com/postrider/postrider/internal/lib/registrable"
)

// Lengths of an operator's identifier in Feedback-ID, which Gmail demands.
const (
	senderIDMin = 5
	senderIDMax = 15
)

var senderID = regexp.MustCompile(`^[A-Za-z0-9_-]{5,15}$`)

// feedbackSenderID returns the default of feedback_sender_id: the letters and digits of the host's registrable domain,
// so that all nodes of an installation have the same. A hash makes short and long names fit.
func feedbackSenderID(host string) string {
	domain := registrable.Domain(host)
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, domain)
	if len(name) >= senderIDMin && len(name) <= senderIDMax {
		return name
	}
	sum := sha256.Sum256([]byte(domain))
	return name[:min(len(name), senderIDMax-6)] + hex.EncodeToString(sum[:3])
}
