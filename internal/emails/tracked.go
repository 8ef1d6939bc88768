package emails

import (
	"crypto/hmac"
	"encoding/base64"
	"encoding/binary"

	"github.com/google/uuid"

	"github.com/postrider/postrider/internal/fault"
)

// Tracked is what the token of a tracked link or of a tracking pixel carries.
type Tracked struct {
	EmailID  string
	Position int    // of the recipient in the envelope, from 0; -1 if the message was for several
	URL      string // the target of the link; "" for a pixel
}

const (
	trackPurpose = "track"
	trackVersion = 1
	trackMAC     = 16
	// trackMax bounds the work that a forged token can cause, in characters.
	trackMax = 8192
)

// A token is a version, the position plus one as a varint, the id's 16 octets, the URL, and a MAC of all that. The URL
// is part of the token, so that a link leads to its target also while the database is away and after the email was
// deleted; the MAC makes sure that it leads only where a sender wanted it to.

// appendToken appends the token to dst. It reports false, and appends nothing, if the token would be too long.
func (s *Service) appendToken(dst []byte, t *Tracked) ([]byte, bool) {
	if base64.RawURLEncoding.EncodedLen(len(t.URL)+64) > trackMax {
		return dst, false
	}
	u, err := uuid.Parse(t.EmailID)
	if err != nil {
		return dst, false
	}
	data := append(make([]byte, 0, len(t.URL)+64), trackVersion)
	data = binary.AppendUvarint(data, uint64(t.Position+1))
	data = append(data, u[:]...)
	data = append(data, t.URL...)
	data = append(data, s.keys.Tag(trackPurpose, data, trackMAC)...)
	return base64.RawURLEncoding.AppendEncode(dst, data), true
}

// ReadTracked returns what a token carries. A token that was not made here or was altered is a NotFound fault. It reads
// nothing from the database: the email may have been deleted since.
func (s *Service) ReadTracked(token string) (Tracked, error) {
	none := fault.NotFoundf("There is nothing at this address.")
	if len(token) > trackMax {
		return Tracked{}, none
	}
	data, err := base64.RawURLEncoding.DecodeString(token)
	// The decoder ignores line breaks and unused bits at the end; encoding again reveals them.
	if err != nil || len(data) < 2+16+trackMAC || base64.RawURLEncoding.EncodeToString(data) != token {
		return Tracked{}, none
	}
	data, mac := data[:len(data)-trackMAC], data[len(data)-trackMAC:]
	if data[0] != trackVersion || !hmac.Equal(mac, s.keys.Tag(trackPurpose, data, trackMAC)) {
		return Tracked{}, none
	}
	position, n := binary.Uvarint(data[1:])
	rest := data[1+max(n, 0):]
	if n <= 0 || len(rest) < 16 || position > 3*MaxRecipients {
		return Tracked{}, none
	}
	return Tracked{EmailID: uuid.UUID(rest[:16]).String(), Position: int(position) - 1,
		URL: string(rest[16:])}, nil
}
