package tokens

import (
	"encoding/base64"
	"encoding/binary"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/keyring"
)

// TrackedLink is the decoded token from a tracked link or a tracking pixel.
type TrackedLink struct {
	Ref
	Position int // the recipient's position in the envelope, from 0; -1 if the message had several recipients

	// URL is the target of the link, or "" for a pixel. The target is an absolute http or https URL, in UTF-8 and without
	// control characters. Spaces and non-ASCII characters are kept as the sender wrote them.
	URL string
}

const (
	linkPurpose = "track"
	linkVersion = 2
	macSize     = 16

	// LinkMax is the maximum length of a link token, in characters. LinkMax limits how much processing time a forged token
	// can cost.
	LinkMax = 8192

	// MaxPosition is the largest recipient position that [ReadLink] accepts. An email has at most 50 recipients in each of
	// to, cc and bcc.
	MaxPosition = 3*50 - 1
)

// A link token consists of a version, the position plus one as a varint, the 20 bytes of the [Ref], the URL, and a
// MAC. The MAC covers the other parts and the link's host.
//
// The host is not part of the token. Because the MAC covers the host, a token does not work at another team's host. If
// tokens worked at any host, a team could misuse another team's trusted host to lead people to its own target.
//
// The URL is part of the token, so that a link works even during a database outage and after the email has been
// deleted. Because of the MAC, a link can lead only to a target that was in an email sent by this installation.

// LinkMaker creates the link tokens for one message. A LinkMaker reuses its buffer for each token and is not safe for
// concurrent use.
type LinkMaker struct {
	tag  keyring.Tagger
	data []byte
	from int // index in data at which the token begins, after the host
	head int // length, in bytes, of the prefix of data that all tokens share
}

// NewLinkMaker returns a LinkMaker for an email's links to the given host. The host must be a name in lower case
// without a port. If the email's id is not a UUID, NewLinkMaker returns false. The caller must call Release after
// creating the last token.
func NewLinkMaker(keys *keyring.Keyring, host string, of Ref, position int) (LinkMaker, bool) {
	data := append(append(make([]byte, 0, 512), host...), 0)
	from := len(data)
	data = append(data, linkVersion)
	data = binary.AppendUvarint(data, uint64(position+1))
	data, ok := of.append(data)
	if !ok {
		return LinkMaker{}, false
	}
	return LinkMaker{tag: keys.Tagger(linkPurpose), data: data, from: from, head: len(data)}, true
}

// Release makes the LinkMaker's memory available for reuse. The LinkMaker must not be used afterwards.
func (m *LinkMaker) Release() { m.tag.Release() }

// Append appends the token for a URL to dst. If the token would be too long, Append appends nothing and returns false.
func (m *LinkMaker) Append(dst, url []byte) ([]byte, bool) {
	if base64.RawURLEncoding.EncodedLen(m.head-m.from+len(url)+macSize) > LinkMax {
		return dst, false
	}
	m.data = append(m.data[:m.head], url...)
	m.data = m.tag.Append(m.data, m.data, macSize)
	return base64.RawURLEncoding.AppendEncode(dst, m.data[m.from:]), true
}

// ReadLink verifies and decodes the token in a link to the given host. The host must be a name in lower case without a
// port. If the token has been altered, was created with different keys, or is for another host, ReadLink returns a
// NotFound fault. The email may have been deleted after the token was created.
func ReadLink(keys *keyring.Keyring, token, host string) (TrackedLink, error) {
	none := fault.NotFoundf("There is nothing at this address.")
	if len(token) > LinkMax {
		return TrackedLink{}, none
	}
	data, err := base64.RawURLEncoding.DecodeString(token)
	// The decoder ignores line breaks and unused bits at the end. To detect both, the data is encoded again and compared
	// with the token.
	if err != nil || len(data) < 2+refSize+macSize || base64.RawURLEncoding.EncodeToString(data) != token {
		return TrackedLink{}, none
	}
	data, mac := data[:len(data)-macSize], data[len(data)-macSize:]
	signed := append(append(append(make([]byte, 0, len(host)+1+len(data)), host...), 0), data...)
	if data[0] != linkVersion || !keys.TagMatches(linkPurpose, signed, mac) {
		return TrackedLink{}, none
	}
	position, n := binary.Uvarint(data[1:])
	rest := data[1+max(n, 0):]
	if n <= 0 || len(rest) < refSize || position > MaxPosition+1 {
		return TrackedLink{}, none
	}
	return TrackedLink{Ref: readRef(rest), Position: int(position) - 1, URL: string(rest[refSize:])}, nil
}
