package tokens

import (
	"encoding/base32"
	"strings"

	"github.com/postrider/postrider/internal/platform/keyring"
)

// Each message has a return path that is specific to its email and destination (VERP). The return path identifies the
// email to which a bounce refers. A return path in a bounce also proves that the sender of the bounce has seen the
// message to that destination.
//
// The local part is "b-" followed by 48 base32 characters in lower case. The characters encode the short id of
// the team (4 bytes), the email's id (16 bytes), a keyed hash of the destination (2 bytes), and a MAC tag (8 bytes).
// Base32 is used because hosts may change the case of the local part. The hash of the destination is keyed so that an
// attacker cannot find another domain with the same hash.
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
	tokenSize         = refSize + hintSize + tagSize
)

// ProofPattern matches return paths and values of [FeedbackField], in lower case.
const ProofPattern = `[bf]-[a-z2-7]{48}`

// FeedbackField is the name of a header field that package delivery adds to each message. A complaint that quotes this
// field proves that its sender has the message that was sent to the destination. DKIM signatures do not cover the
// field, because its value is different for each destination. The tag in the value prevents forgery.
const FeedbackField = "X-Postrider-Feedback"

// ComplaintsLocal is the local part of the address at a domain's return-path host that receives complaints (RFC 9477).
const ComplaintsLocal = "fbl"

var lowerBase32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// ReturnPath returns the local part of the return path for an email to a destination. The local part is 50 bytes long;
// RFC 5321 section 4.5.3.1.1 allows 64.
func ReturnPath(keys *keyring.Keyring, of Ref, destination string) string {
	token := proof(keys, returnPathPurpose, of, destination)
	if token == "" {
		return "bounces" // never reached for real emails, whose ids are UUIDs
	}
	return returnPathPrefix + token
}

// ParseReturnPath returns the email named in the local part of a return path. ParseReturnPath returns false
// unless ReturnPath created the local part with the same keys.
func ParseReturnPath(keys *keyring.Keyring, local string) (of Ref, ok bool) {
	return parseProof(keys, returnPathPurpose, returnPathPrefix, local)
}

// Feedback returns the value of [FeedbackField] for an email to a destination.
func Feedback(keys *keyring.Keyring, of Ref, destination string) string {
	return feedbackPrefix + proof(keys, feedbackPurpose, of, destination)
}

// ParseFeedback returns the email named in a value of [FeedbackField]. ParseFeedback returns false unless
// Feedback created the value with the same keys.
func ParseFeedback(keys *keyring.Keyring, value string) (of Ref, ok bool) {
	return parseProof(keys, feedbackPurpose, feedbackPrefix, value)
}

// proof returns the token for an email to a destination. If the email's id is not a UUID, proof returns "".
func proof(keys *keyring.Keyring, purpose string, of Ref, destination string) string {
	token, ok := of.append(make([]byte, 0, tokenSize+len(destination)))
	if !ok {
		return ""
	}
	token = append(token, keys.Tag(hintPurpose, append(token, destination...), tagSize)[:hintSize]...)
	token = append(token, keys.Tag(purpose, token, tagSize)...)
	return lowerBase32.EncodeToString(token)
}

func parseProof(keys *keyring.Keyring, purpose, prefix, text string) (of Ref, ok bool) {
	text, ok = strings.CutPrefix(strings.ToLower(text), prefix)
	if !ok || len(text) != lowerBase32.EncodedLen(tokenSize) {
		return Ref{}, false
	}
	token, err := lowerBase32.DecodeString(text)
	// The last character has unused bits, which the decoder ignores. To detect a token in which unused bits are set,
	// the token is encoded again.
	if err != nil || lowerBase32.EncodeToString(token) != text {
		return Ref{}, false
	}
	signed, tag := token[:refSize+hintSize], token[refSize+hintSize:]
	if !keys.TagMatches(purpose, signed, tag) {
		return Ref{}, false
	}
	return readRef(signed), true
}
