package keyring

import (
	"crypto/hmac"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"time"
)

// Errors of Verify and VerifyJWT. A caller may tell them apart to a stranger: only a token that we made can expire.
var (
	ErrForged  = errors.New("token was not made here, or for another purpose, or has been altered")
	ErrExpired = errors.New("token has expired")
)

const (
	tokenVersion = 1
	// tokenMAC is half of SHA-256, the least that RFC 2104 section 5 advises; links stay short.
	tokenMAC = 16
	// tokenMax bounds the work that a stranger's token can cause, in characters.
	tokenMax = 8192
)

// Sign returns a URL-safe token (letters, digits, - and _) that carries parts and expires at a time, in whole seconds;
// the zero time means never. The parts can be read by whoever has the token; they cannot be changed. It panics when
// the token would be longer than Verify accepts, 8,192 characters: parts are ids, addresses and URLs, not bodies.
func (k *Keyring) Sign(purpose string, expires time.Time, parts ...string) string {
	data := []byte{tokenVersion}
	var until uint64
	if !expires.IsZero() {
		until = uint64(max(expires.Unix(), 1)) // 0 is taken: it means never.
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

// Verify returns the parts of a token that Sign made for the same purpose, or ErrForged, or from its expiry on
// ErrExpired. Each token has one spelling: another text that decodes to the same bytes is forged.
func (k *Keyring) Verify(purpose, token string, now time.Time) ([]string, error) {
	if len(token) > tokenMax {
		return nil, ErrForged
	}
	data, err := base64.RawURLEncoding.DecodeString(token)
	// The decoder skips line breaks and loose bits at the end; encoding again shows them.
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
