package emails

import (
	"crypto/hmac"
	"encoding/base32"
	"hash/fnv"
	"strings"

	"github.com/google/uuid"

	"github.com/postrider/postrider/internal/keyring"
)

// A return path is made for each message (VERP), so that a bounce that comes back later says of which email it is. Its
// local part is "b-" and 42 characters of base32 in lower case: the email's id (16 octets), a hash of the destination
// (2), and a tag (8) that nobody else can make. Hosts may change the case; it does not matter.
const (
	returnPathPrefix  = "b-"
	returnPathPurpose = "return-path"
	hintSize          = 2
	tagSize           = 8
	tokenSize         = 16 + hintSize + tagSize
)

var lowerBase32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// ReturnPath returns the local part of the return path of an email to a destination: 44 octets, of the 64 that RFC 5321
// section 4.5.3.1.1 allows.
func ReturnPath(keys *keyring.Keyring, emailID, destination string) string {
	u, err := uuid.Parse(emailID)
	if err != nil {
		return "bounces" // No id of ours is like that; such a bounce is one of nobody's.
	}
	h := fnv.New32a()
	h.Write([]byte(destination))
	token := make([]byte, 0, tokenSize)
	token = append(token, u[:]...)
	token = h.Sum(token)[:16+hintSize]
	token = append(token, keys.Tag(returnPathPurpose, token, tagSize)...)
	return returnPathPrefix + lowerBase32.EncodeToString(token)
}

// ParseReturnPath returns the id of the email whose return path has this local part. It reports false for whatever was not
// made here.
func ParseReturnPath(keys *keyring.Keyring, local string) (emailID string, ok bool) {
	text, ok := strings.CutPrefix(strings.ToLower(local), returnPathPrefix)
	if !ok || len(text) != lowerBase32.EncodedLen(tokenSize) {
		return "", false
	}
	token, err := lowerBase32.DecodeString(text)
	// The last character has loose bits; encoding again shows them.
	if err != nil || lowerBase32.EncodeToString(token) != text {
		return "", false
	}
	signed, tag := token[:16+hintSize], token[16+hintSize:]
	if !hmac.Equal(tag, keys.Tag(returnPathPurpose, signed, tagSize)) {
		return "", false
	}
	return uuid.UUID(signed[:16]).String(), true
}
