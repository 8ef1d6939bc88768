package emails

import (
	"crypto/hmac"
	"encoding/base32"
	"strings"

	"github.com/google/uuid"

	"github.com/postrider/postrider/internal/keyring"
)

// A return path is made for each message and destination (VERP), so that a bounce that comes back later says of which
// email it is, and proves that its sender has seen what was sent to the destination. Its local part is "b-" and 42
// characters of base32 in lower case: the email's id (16 octets), a hint of the destination (2), and a tag (8) that
// nobody else can make. Hosts may change the case; it does not matter. The hint is keyed too: nobody can choose a
// domain that has the hint of another.
//
// The proof of [FeedbackField] has the same form. It is a token of its own, because who is forwarded a message sees
// its fields and not its return path: what is known to more people shall prove less.
const (
	returnPathPrefix  = "b-"
	returnPathPurpose = "return-path"
	feedbackPrefix    = "f-"
	feedbackPurpose   = "feedback"
	hintPurpose       = "destination"
	hintSize          = 2
	tagSize           = 8
	tokenSize         = 16 + hintSize + tagSize
)

// FeedbackField is the name of the field that each message is sent with. A complaint about the message proves by
// quoting it that whoever complains has the message as it was sent to that destination. No DKIM signature covers it:
// it differs from one destination to the next, and its tag needs no protection.
const FeedbackField = "X-Postrider-Feedback"

var lowerBase32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// ReturnPath returns the local part of the return path of an email to a destination: 44 octets, of the 64 that RFC 5321
// section 4.5.3.1.1 allows.
func ReturnPath(keys *keyring.Keyring, emailID, destination string) string {
	token := proof(keys, returnPathPurpose, emailID, destination)
	if token == "" {
		return "bounces" // No id of ours is like that; such a bounce is one of nobody's.
	}
	return returnPathPrefix + token
}

// ParseReturnPath returns the id of the email whose return path has this local part. It reports false for whatever
// was not made here.
func ParseReturnPath(keys *keyring.Keyring, local string) (emailID string, ok bool) {
	return parseProof(keys, returnPathPurpose, returnPathPrefix, local)
}

// Feedback returns the value of [FeedbackField] of an email to a destination.
func Feedback(keys *keyring.Keyring, emailID, destination string) string {
	return feedbackPrefix + proof(keys, feedbackPurpose, emailID, destination)
}

// ParseFeedback returns the id of the email that was sent with this value of [FeedbackField]. It reports false for
// whatever was not made here.
func ParseFeedback(keys *keyring.Keyring, value string) (emailID string, ok bool) {
	return parseProof(keys, feedbackPurpose, feedbackPrefix, value)
}

// proof is empty for what is no id.
func proof(keys *keyring.Keyring, purpose, emailID, destination string) string {
	u, err := uuid.Parse(emailID)
	if err != nil {
		return ""
	}
	token := make([]byte, 0, tokenSize)
	token = append(token, u[:]...)
	token = append(token, keys.Tag(hintPurpose, append(u[:], destination...), tagSize)[:hintSize]...)
	token = append(token, keys.Tag(purpose, token, tagSize)...)
	return lowerBase32.EncodeToString(token)
}

func parseProof(keys *keyring.Keyring, purpose, prefix, text string) (emailID string, ok bool) {
	text, ok = strings.CutPrefix(strings.ToLower(text), prefix)
	if !ok || len(text) != lowerBase32.EncodedLen(tokenSize) {
		return "", false
	}
	token, err := lowerBase32.DecodeString(text)
	// The last character has loose bits; encoding again shows them.
	if err != nil || lowerBase32.EncodeToString(token) != text {
		return "", false
	}
	signed, tag := token[:16+hintSize], token[16+hintSize:]
	if !hmac.Equal(tag, keys.Tag(purpose, signed, tagSize)) {
		return "", false
	}
	return uuid.UUID(signed[:16]).String(), true
}
