package keyring

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const (
	apiKeyPrefix = "re_"
	base62       = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// NewAPIKey returns a new API key: "re_", 8 characters that may be shown, "_", and 24 secret characters (API reference
// section 3). The secret characters contain 142 random bits.
func NewAPIKey() string {
	return apiKeyPrefix + randomText(8) + "_" + randomText(24)
}

// HashAPIKey returns the SHA-256 hash of a key as 64 hexadecimal digits, for storage and look-up. Only secrets that
// people choose need a slow, salted hash. An API key has 142 random bits, so it can be neither guessed nor looked up in
// a precomputed table. A slow hash would dominate the processing time of every request.
func HashAPIKey(token string) string {
	h := sha256.Sum256([]byte(token))
	return hex.EncodeToString(h[:])
}

// APIKeyHint returns the part of a key that may be displayed and stored as plain text: "re_" and 8 characters. If token
// does not have the form that NewAPIKey produces, APIKeyHint returns "".
func APIKeyHint(token string) string {
	hint, secret, ok := strings.Cut(strings.TrimPrefix(token, apiKeyPrefix), "_")
	if !ok || !strings.HasPrefix(token, apiKeyPrefix) || len(hint) != 8 || len(secret) != 24 {
		return ""
	}
	return apiKeyPrefix + hint
}

// randomText returns n characters of base62. Random bytes of 248 and above are discarded. If these bytes were used, the
// first eight characters would be more likely, because 256 is not a multiple of 62.
func randomText(n int) string {
	out := make([]byte, 0, n)
	var buf [32]byte
	for len(out) < n {
		rand.Read(buf[:])
		for _, b := range buf {
			if b < 248 && len(out) < n {
				out = append(out, base62[b%62])
			}
		}
	}
	return string(out)
}
