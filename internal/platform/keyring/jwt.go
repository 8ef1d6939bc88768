package keyring

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// JWT returns claims as a signed token in compact form (RFC 7519). The token also contains `iat` and `exp` in whole
// seconds, which replace claims with these names. The claims parameter must be a struct or a map[string]any. Anybody
// who has the token can read the claims. The life parameter must be at least one second. The algorithm is always HS256
// (RFC 7518 section 3.2).
func (k *Keyring) JWT(purpose string, claims any, now time.Time, life time.Duration) (string, error) {
	if life < time.Second {
		return "", fmt.Errorf("life of a token is %v, must be at least a second", life)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: k.key("jwt", purpose)},
		(&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return "", fmt.Errorf("prepare to sign a token: %w", err)
	}
	times := jwt.Claims{IssuedAt: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(life))}
	token, err := jwt.Signed(signer).Claims(claims).Claims(times).Serialize()
	if err != nil {
		return "", fmt.Errorf("sign claims, which must be a JSON object and are %T: %w", claims, err)
	}
	return token, nil
}

// VerifyJWT checks a token that JWT created for the same purpose. The token's claims are decoded into the value to
// which the claims parameter points; claims may be nil. VerifyJWT returns ErrForged or ErrExpired if the token is not
// valid. Like Verify, it accepts only tokens of the current master key. VerifyJWT rejects tokens without `exp` and
// tokens with an algorithm other than HS256, including `none` (RFC 8725 section 3.1). The caller must check claims other
// than `exp`.
func (k *Keyring) VerifyJWT(purpose, token string, now time.Time, claims any) error {
	if len(token) > tokenMax {
		return ErrForged
	}
	signed, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.HS256})
	if err != nil || !isJWT(signed.Signatures[0].Protected) {
		return ErrForged
	}
	payload, err := signed.Verify(k.key("jwt", purpose))
	// A base64 decoder ignores some bits of the encoded text. By comparing the text, VerifyJWT ensures that a token has
	// only one valid spelling.
	if spelled, e := signed.CompactSerialize(); err != nil || e != nil || spelled != token {
		return ErrForged
	}
	var times jwt.Claims
	if err := json.Unmarshal(payload, &times); err != nil || times.Expiry == nil {
		return ErrForged
	}
	if !now.Before(times.Expiry.Time()) {
		return ErrExpired
	}
	if claims == nil {
		return nil
	}
	if err := json.Unmarshal(payload, claims); err != nil {
		return fmt.Errorf("decode claims: %w", err)
	}
	return nil
}

// isJWT reports whether a token's header is that of a JWT (RFC 8725 section 3.11). isJWT accepts a header without a
// type.
func isJWT(h jose.Header) bool {
	typ, ok := h.ExtraHeaders[jose.HeaderType]
	return !ok || typ == "JWT"
}
