package keyring

import (
	"crypto/hmac"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"iter"
	"slices"
	"time"
)

// Errors that Verify and VerifyJWT return. A caller may reveal which of these errors occurred, because ErrExpired is
// returned only for tokens that this keyring signed.
var (
	ErrForged  = errors.New("token was not made here, or for another purpose, or has been altered")
	ErrExpired = errors.New("token has expired")
)

const (
	tokenVersion = 1
	// tokenMAC is the length of a token's MAC in bytes. To keep links short, it is half of a SHA-256 hash, the minimum
	// that RFC 2104 section 5 recommends.
	tokenMAC = 16
	// tokenMax is the maximum length of a token in characters. It limits the work that a forged token can cause.
	tokenMax = 8192
)

// LinkExpiry returns the expiry of a download link that is created now: one hour later, in whole milliseconds as in the
// API.
func LinkExpiry(now time.Time) time.Time {
	return now.Add(time.Hour).UTC().Truncate(time.Millisecond)
}

// Sign returns a URL-safe token (letters, digits, - and _) that contains parts. The token expires at the given time, in
// whole seconds. If expires is the zero time, the token never expires. Anybody who has the token can read the parts but
// not change them. Parts should be short strings such as ids, addresses and URLs. Sign panics if the token would be
// longer than the 8,192 characters that Verify accepts.
func (k *Keyring) Sign(purpose string, expires time.Time, parts ...string) string {
	data := []byte{tokenVersion}
	var until uint64
	if !expires.IsZero() {
		until = uint64(max(expires.Unix(), 1)) // 0 means never.
	}
	data = binary.AppendUvarint(data, until)
	for _, p := range parts {
		data = binary.AppendUvarint(data, uint64(len(p)))
		data = append(data, p...)
	}
	data = append(data, sum(k.key("sign", purpose), data)[:tokenMAC]...)
	token := base64.RawURLEncoding.EncodeToString(data)
	if len(token) > tokenMax {
		panic("keyring: the parts of a token are too long")
	}
	return token
}

// Verify returns the parts of a token that Sign created for the same purpose. Verify returns ErrExpired for expired
// tokens and ErrForged for all other invalid tokens. Each token has one valid spelling: for another string that decodes
// to the same bytes, Verify returns ErrForged. Tokens of earlier master keys are not valid, because somebody may have
// seen such a key.
func (k *Keyring) Verify(purpose, token string, now time.Time) ([]string, error) {
	return verify(slices.Values([]*Keyring{k}), purpose, token, now)
}

// VerifyLasting is Verify for links that never expire and are in emails that were sent. It also accepts tokens of earlier
// master keys. Such a token must not give access to anything but what every recipient may do.
func (k *Keyring) VerifyLasting(purpose, token string) ([]string, error) {
	return verify(k.rings(), purpose, token, time.Time{})
}

func verify(rings iter.Seq[*Keyring], purpose, token string, now time.Time) ([]string, error) {
	if len(token) > tokenMax {
		return nil, ErrForged
	}
	data, err := base64.RawURLEncoding.DecodeString(token)
	// The decoder ignores line breaks and unused bits at the end. To reject other spellings, Verify encodes the data
	// again and compares the result with the token.
	if err != nil || len(data) < 1+tokenMAC || base64.RawURLEncoding.EncodeToString(data) != token {
		return nil, ErrForged
	}
	data, mac := data[:len(data)-tokenMAC], data[len(data)-tokenMAC:]
	if !signed(rings, purpose, data, mac) || data[0] != tokenVersion {
		return nil, ErrForged
	}
	until, n := binary.Uvarint(data[1:])
	if n <= 0 {
		return nil, ErrForged
	}
	if until != 0 && now.Unix() >= int64(until) {
		return nil, ErrExpired
	}
	return splitParts(data[1+n:])
}

// signed reports whether one of the keyrings made the MAC of data.
func signed(rings iter.Seq[*Keyring], purpose string, data, mac []byte) bool {
	for ring := range rings {
		if hmac.Equal(mac, sum(ring.key("sign", purpose), data)[:tokenMAC]) {
			return true
		}
	}
	return false
}

func splitParts(data []byte) ([]string, error) {
	var parts []string
	for len(data) > 0 {
		size, n := binary.Uvarint(data)
		if n <= 0 || size > uint64(len(data)-n) {
			return nil, ErrForged
		}
		parts = append(parts, string(data[n:n+int(size)]))
		data = data[n+int(size):]
	}
	return parts, nil
}
