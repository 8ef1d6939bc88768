package keyring

import (
	"crypto/hmac"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"time"
)

// Errors of Verify and VerifyJWT. A caller may reveal which one occurred, because only a token that was made here can
// expire.
var (
	ErrForged  = errors.New("token was not made here, or for another purpose, or has been altered")
	ErrExpired = errors.New("token has expired")
)

const (
	tokenVersion = 1
	// tokenMAC is half of a SHA-256, the least that RFC 2104 section 5 recommends, so that links stay short.
	tokenMAC = 16
	// tokenMax is the maximum length of a token in characters. It bounds the work that a forged token can cause.
	tokenMax = 8192
)

// LinkExpiry returns the expiry of a download link that is made now: one hour from now, in whole milliseconds as in the
// API.
func LinkExpiry(now time.Time) time.Time {
	return now.Add(time.Hour).UTC().Truncate(time.Millisecond)
}

// Sign returns a URL-safe token (letters, digits, - and _) that contains parts. The token expires at the time in
// expires, in whole seconds. If expires is the zero time, the token never expires. Anybody who has the token can read
// the parts but not change them. Sign panics if the token would be longer than the 8,192 characters that Verify
// accepts: parts are ids, addresses and URLs, not bodies.
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

// Verify returns the parts of a token that Sign made for the same purpose. Other tokens return ErrForged, and expired
// ones ErrExpired. Each token has one valid spelling: another text that decodes to the same bytes returns ErrForged.
func (k *Keyring) Verify(purpose, token string, now time.Time) ([]string, error) {
	if len(token) > tokenMax {
		return nil, ErrForged
	}
	data, err := base64.RawURLEncoding.DecodeString(token)
	// The decoder ignores line breaks and unused bits at the end, so the data is encoded again and compared.
	if err != nil || len(data) < 1+tokenMAC || base64.RawURLEncoding.EncodeToString(data) != token {
		return nil, ErrForged
	}
	data, mac := data[:len(data)-tokenMAC], data[len(data)-tokenMAC:]
	if !hmac.Equal(mac, sum(k.key("sign", purpose), data)[:tokenMAC]) || data[0] != tokenVersion {
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
