package tokens

import (
	"crypto/hmac"
	"encoding/base32"
	"strings"

	"github.com/google/uuid"

	"github.com/postrider/postrider/internal/platform/keyring"
)

// Each message gets a return path for its email and destination (VERP). The return path tells which email a bounce is
// about, and it proves that the sender of the bounce has seen what was sent to that destination.
//
// The local part is "b-" and 42 characters of base32 in lower case: the email's id (16 bytes), a hint of the
// destination (2 bytes), and a tag (8 bytes) that cannot be made without the key. Hosts may change the case. The hint
// is keyed too, so that an attacker cannot choose a domain with the same hint as another.
//
// The value of [FeedbackField] has the same form but another purpose. A person who gets the message forwarded sees its
// fields, but not its return path, so the value of the field must prove less.
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

// FeedbackField is the name of a field that delivery adds to each message. A complaint that quotes the field proves
// that the complaint's sender has the message as it was sent to that destination. DKIM signatures do not cover the
// field, because its value differs between destinations; its tag protects it.
const FeedbackField = "X-Postrider-Feedback"

var lowerBase32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// ReturnPath returns the local part of the return path of an email to a destination. It has 44 bytes; RFC 5321 section
// 4.5.3.1.1 allows 64.
func ReturnPath(keys *keyring.Keyring, emailID, destination string) string {
	token := proof(keys, returnPathPurpose, emailID, destination)
	if token == "" {
		return "bounces" // Every email has a UUID, so a bounce to this address belongs to no email.
	}
	return returnPathPrefix + token
}

// ParseReturnPath returns the id of the email whose return path has this local part. It returns false unless ReturnPath
// made the local part with these keys.
func ParseReturnPath(keys *keyring.Keyring, local string) (emailID string, ok bool) {
	return parseProof(keys, returnPathPurpose, returnPathPrefix, local)
}

// Feedback returns the value of [FeedbackField] of an email to a destination.
func Feedback(keys *keyring.Keyring, emailID, destination string) string {
	return feedbackPrefix + proof(keys, feedbackPurpose, emailID, destination)
}

// ParseFeedback returns the id of the email that was sent with this value of [FeedbackField]. It returns false unless
// Feedback made the value with these keys.
func ParseFeedback(keys *keyring.Keyring, value string) (emailID string, ok bool) {
	return parseProof(keys, feedbackPurpose, feedbackPrefix, value)
}

// proof returns the token of an email and a destination. It returns "" if emailID is not a UUID.
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
	// The last character has unused bits, which the decoder ignores. The token is encoded again to detect one that sets
	// these bits.
	if err != nil || lowerBase32.EncodeToString(token) != text {
		return "", false
	}
	signed, tag := token[:16+hintSize], token[16+hintSize:]
	if !hmac.Equal(tag, keys.Tag(purpose, signed, tagSize)) {
		return "", false
	}
	return uuid.UUID(signed[:16]).String(), true
}
