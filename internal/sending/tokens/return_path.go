package tokens

import (
	"crypto/hmac"
	"encoding/base32"
	"strings"

	"github.com/google/uuid"

	"github.com/postrider/postrider/internal/platform/keyring"
)

// Each message has a return path that is specific to its email and destination (VERP). The return path identifies the
// email to which a bounce refers. A return path in a bounce also proves that the sender of the bounce has seen the
// message to that destination.
//
// The local part is "b-" followed by 42 base32 characters in lower case. The characters encode the email's id (16
// bytes), a keyed hash of the destination (2 bytes), and a MAC tag (8 bytes). Base32 is used because hosts may change
// the case of the local part. The hash of the destination is keyed so that an attacker cannot find another domain with
// the same hash.
//
// The value of [FeedbackField] has the same form but a different purpose. If a message is forwarded, its new recipient
// sees the header fields but not the return path. The header field must therefore not be accepted as a return path.
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

// FeedbackField is the name of a header field that package delivery adds to each message. A complaint that quotes this
// field proves that its sender has the message that was sent to the destination. DKIM signatures do not cover the
// field, because its value is different for each destination. The tag in the value prevents forgery.
const FeedbackField = "X-Postrider-Feedback"

var lowerBase32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// ReturnPath returns the local part of the return path for an email to a destination. The local part is 44 bytes long;
// RFC 5321 section 4.5.3.1.1 allows 64.
func ReturnPath(keys *keyring.Keyring, emailID, destination string) string {
	token := proof(keys, returnPathPurpose, emailID, destination)
	if token == "" {
		return "bounces" // never reached for real emails, whose ids are UUIDs
	}
	return returnPathPrefix + token
}

// ParseReturnPath returns the email id contained in the local part of a return path. ParseReturnPath returns false
// unless ReturnPath created the local part with the same keys.
func ParseReturnPath(keys *keyring.Keyring, local string) (emailID string, ok bool) {
	return parseProof(keys, returnPathPurpose, returnPathPrefix, local)
}

// Feedback returns the value of [FeedbackField] for an email to a destination.
func Feedback(keys *keyring.Keyring, emailID, destination string) string {
	return feedbackPrefix + proof(keys, feedbackPurpose, emailID, destination)
}

// ParseFeedback returns the email id contained in a value of [FeedbackField]. ParseFeedback returns false unless
// Feedback created the value with the same keys.
func ParseFeedback(keys *keyring.Keyring, value string) (emailID string, ok bool) {
	return parseProof(keys, feedbackPurpose, feedbackPrefix, value)
}

// proof returns the token for an email to a destination. If emailID is not a UUID, proof returns "".
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
	// The last character has unused bits, which the decoder ignores. To detect a token in which unused bits are set, the
	// token is encoded again.
	if err != nil || lowerBase32.EncodeToString(token) != text {
		return "", false
	}
	signed, tag := token[:16+hintSize], token[16+hintSize:]
	if !hmac.Equal(tag, keys.Tag(purpose, signed, tagSize)) {
		return "", false
	}
	return uuid.UUID(signed[:16]).String(), true
}
