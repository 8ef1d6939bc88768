package emails

import (
	"crypto/hmac"
	"encoding/base32"
	"strings"

	"github.com/google/uuid"

	"github.com/postrider/postrider/internal/platform/keyring"
)

// A return path is made for each message and destination (VERP), so that a later bounce identifies its email and proves
// that its sender has seen what was sent to the destination. Its local part is "b-" and 42 characters of base32 in
// lower case: the email's id (16 octets), a hint of the destination (2), and a tag (8) that cannot be made without the
// key. Hosts may change the case. The hint is keyed too, so that nobody can choose a domain that has the hint of
// another.
//
// The token in [FeedbackField] has the same form but is a different one. A person to whom a message is forwarded sees
// its fields, but not its return path, so the token in the fields must prove less.
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

// FeedbackField is the name of a field that is added to each message. A complaint that quotes it proves that the sender
// of the complaint has the message as it was sent to that destination. The field is not covered by a DKIM signature: it
// differs between destinations, and its tag protects it.
const FeedbackField = "X-Postrider-Feedback"

var lowerBase32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// ReturnPath returns the local part of the return path of an email to a destination: 44 octets, of the 64 that RFC 5321
// section 4.5.3.1.1 allows.
func ReturnPath(keys *keyring.Keyring, emailID, destination string) string {
	token := proof(keys, returnPathPurpose, emailID, destination)
	if token == "" {
		return "bounces" // No email of ours has such an id; a bounce to this address belongs to no email.
	}
	return returnPathPrefix + token
}

// ParseReturnPath returns the id of the email whose return path has this local part. It reports false for anything that
// ReturnPath did not make with these keys.
func ParseReturnPath(keys *keyring.Keyring, local string) (emailID string, ok bool) {
	return parseProof(keys, returnPathPurpose, returnPathPrefix, local)
}

// Feedback returns the value of [FeedbackField] of an email to a destination.
func Feedback(keys *keyring.Keyring, emailID, destination string) string {
	return feedbackPrefix + proof(keys, feedbackPurpose, emailID, destination)
}

// ParseFeedback returns the id of the email that was sent with this value of [FeedbackField]. It reports false for
// anything that Feedback did not make with these keys.
func ParseFeedback(keys *keyring.Keyring, value string) (emailID string, ok bool) {
	return parseProof(keys, feedbackPurpose, feedbackPrefix, value)
}

// proof returns the token of an email and a destination, "" if emailID is not a UUID.
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
	// The last character has unused bits; encoding again detects other values of them.
	if err != nil || lowerBase32.EncodeToString(token) != text {
		return "", false
	}
	signed, tag := token[:16+hintSize], token[16+hintSize:]
	if !hmac.Equal(tag, keys.Tag(purpose, signed, tagSize)) {
		return "", false
	}
	return uuid.UUID(signed[:16]).String(), true
}
