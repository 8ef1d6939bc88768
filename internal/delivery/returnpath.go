package delivery

import (
	"encoding/base32"
	"encoding/hex"
	"strings"

	"github.com/google/uuid"

	"github.com/postrider/postrider/internal/domains"
	"github.com/postrider/postrider/internal/keyring"
)

const (
	returnPrefix  = "b-"
	returnPurpose = "return-path"
	tagLength     = 10 // octets: nobody forges a bounce by guessing
)

var lower32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// returnPath is the envelope sender of an email: an address of its own, by which a bounce is matched whatever else of the
// report is mangled. It has 44 octets before the @, of the 64 that RFC 5321 section 4.5.3.1.1 allows.
func (s *Service) returnPath(emailID string, d domains.Signing) string {
	host := d.ReturnPathHost
	if host == "" {
		host = s.Hostname
	}
	return ReturnPath(s.Keys, emailID) + "@" + host
}

// ReturnPath is the local part of an email's return path.
func ReturnPath(k *keyring.Keyring, emailID string) string {
	u, err := uuid.Parse(emailID)
	if err != nil {
		return returnPrefix + hex.EncodeToString([]byte(emailID)) // not ours; it will not be recognised
	}
	return returnPrefix + lower32.EncodeToString(append(u[:], k.Tag(returnPurpose, u[:], tagLength)...))
}

// ParseReturnPath returns the email that the local part of a return path stands for, and false when we did not make it.
// Case does not matter: some hosts change it.
func ParseReturnPath(k *keyring.Keyring, local string) (emailID string, ok bool) {
	text, ok := strings.CutPrefix(strings.ToLower(local), returnPrefix)
	if !ok {
		return "", false
	}
	raw, err := lower32.DecodeString(text)
	if err != nil || len(raw) != 16+tagLength {
		return "", false
	}
	emailID = uuid.UUID(raw[:16]).String()
	return emailID, ReturnPath(k, emailID) == returnPrefix+text
}
