package tokens

import (
	"crypto/hmac"
	"encoding/base64"
	"encoding/binary"

	"github.com/google/uuid"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/keyring"
)

// TrackedLink is the content of the token of a tracked link or of a tracking pixel.
type TrackedLink struct {
	EmailID  string
	Position int // position of the recipient in the envelope, from 0; -1 if the message had several recipients

	// URL is the target of the link; "" for a pixel. It is an absolute http or https URL in UTF-8 without control
	// characters. Spaces and characters outside ASCII stay as the sender wrote them.
	URL string
}

const (
	linkPurpose = "track"
	linkVersion = 1
	macSize     = 16

	// LinkMax is the length of the longest token of a link, in characters. The limit bounds the work that a forged
	// token can cause.
	LinkMax = 8192

	// MaxPosition is the largest position of a recipient that [ReadLink] accepts. An email has at most 50 recipients in
	// each of to, cc and bcc.
	MaxPosition = 3*50 - 1
)

// The token of a link has these parts: a version, the position plus one as a varint, the 16 bytes of the email's id,
// the URL, and a MAC. The MAC covers the other parts and the host of the link.
//
// The host itself is not part of the token. Because the MAC covers the host, a token does not work at the host of
// another team. At the host of another team, a link would lead people who trust that host to a target that the first
// team chose.
//
// The URL is part of the token, so that a link works while the database is away and after the email was deleted.
// Because of the MAC, a link leads only to a target that a sender chose.

// LinkMaker makes the tokens of the links of one message. It uses its buffer again for each token. It is not safe for
// concurrent use.
type LinkMaker struct {
	tag  keyring.Tagger
	data []byte
	from int // where the token begins in data, after the host
	head int // length of the beginning of data that all tokens share, in bytes
}

// NewLinkMaker returns the maker of tokens for an email's links at a host: a name in lower case without a port. It
// returns false if emailID is not a UUID, so there is no such email. The caller calls Release when it is done.
func NewLinkMaker(keys *keyring.Keyring, host, emailID string, position int) (LinkMaker, bool) {
	u, err := uuid.Parse(emailID)
	if err != nil {
		return LinkMaker{}, false
	}
	data := append(append(make([]byte, 0, 512), host...), 0)
	from := len(data)
	data = append(data, linkVersion)
	data = binary.AppendUvarint(data, uint64(position+1))
	data = append(data, u[:]...)
	return LinkMaker{tag: keys.Tagger(linkPurpose), data: data, from: from, head: len(data)}, true
}

// Release returns the maker's memory for reuse. The maker must not be used afterwards.
func (m *LinkMaker) Release() { m.tag.Release() }

// Append appends the token of a URL to dst. If the token would be too long, it appends nothing and returns false.
func (m *LinkMaker) Append(dst, url []byte) ([]byte, bool) {
	if base64.RawURLEncoding.EncodedLen(m.head-m.from+len(url)+macSize) > LinkMax {
		return dst, false
	}
	m.data = append(m.data[:m.head], url...)
	m.data = m.tag.Append(m.data, m.data, macSize)
	return base64.RawURLEncoding.AppendEncode(dst, m.data[m.from:]), true
}

// ReadLink returns the content of the token of a link at a host: a name in lower case without a port. It returns a
// NotFound fault for a token that was altered, that was made with other keys, or that is of a link at another host. The
// email may have been deleted since.
func ReadLink(keys *keyring.Keyring, token, host string) (TrackedLink, error) {
	none := fault.NotFoundf("There is nothing at this address.")
	if len(token) > LinkMax {
		return TrackedLink{}, none
	}
	data, err := base64.RawURLEncoding.DecodeString(token)
	// The decoder ignores line breaks and unused bits at the end. Comparing with the encoded data detects both.
	if err != nil || len(data) < 2+16+macSize || base64.RawURLEncoding.EncodeToString(data) != token {
		return TrackedLink{}, none
	}
	data, mac := data[:len(data)-macSize], data[len(data)-macSize:]
	signed := append(append(append(make([]byte, 0, len(host)+1+len(data)), host...), 0), data...)
	if data[0] != linkVersion || !hmac.Equal(mac, keys.Tag(linkPurpose, signed, macSize)) {
		return TrackedLink{}, none
	}
	position, n := binary.Uvarint(data[1:])
	rest := data[1+max(n, 0):]
	if n <= 0 || len(rest) < 16 || position > MaxPosition+1 {
		return TrackedLink{}, none
	}
	return TrackedLink{EmailID: uuid.UUID(rest[:16]).String(), Position: int(position) - 1,
		URL: string(rest[16:])}, nil
}
