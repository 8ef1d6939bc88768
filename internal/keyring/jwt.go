package keyring

import (
	"crypto/hmac"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// jwtHeader is the only header that is ever made: HS256 (RFC 7518 section 3.2).
const jwtHeader = `{"alg":"HS256","typ":"JWT"}`

// JWT returns claims as a signed token in compact form (RFC 7519): a JSON object plus `iat` and `exp`, whole seconds,
// which overwrite claims of those names. The claims can be read by whoever has the token. Life is at least a second.
func (k *Keyring) JWT(purpose string, claims any, now time.Time, life time.Duration) (string, error) {
	raw, err := json.Marshal(claims)
	if err != nil {
		return "", fmt.Errorf("encode claims: %w", err)
	}
	object := map[string]json.RawMessage{}
	if err := json.Unmarshal(raw, &object); err != nil || object == nil {
		return "", fmt.Errorf("claims must be a JSON object, not %T", claims)
	}
	if life < time.Second {
		return "", fmt.Errorf("life of a token is %v, must be at least a second", life)
	}
	object["iat"] = fmt.Append(nil, now.Unix())
	object["exp"] = fmt.Append(nil, now.Add(life).Unix())
	payload, err := json.Marshal(object)
	if err != nil {
		return "", fmt.Errorf("encode claims: %w", err)
	}
	return signHS256(k.key("jwt", purpose), []byte(jwtHeader), payload), nil
}

// VerifyJWT checks a token that JWT made for the same purpose and decodes its claims into claims, a pointer, which
// may be nil. It returns ErrForged or ErrExpired. Algorithms other than HS256, `none` among them, are refused, and so
// are tokens without `exp`. Claims other than `exp` are the caller's to judge.
func (k *Keyring) VerifyJWT(purpose, token string, now time.Time, claims any) error {
	payload, err := openHS256(k.key("jwt", purpose), token)
	if err != nil {
		return err
	}
	var times struct {
		Exp *int64 `json:"exp"`
	}
	if json.Unmarshal(payload, &times) != nil || times.Exp == nil {
		return ErrForged
	}
	if now.Unix() >= *times.Exp {
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

// signHS256 makes the compact form of RFC 7515 section 7.1.
func signHS256(key, header, payload []byte) string {
	enc := base64.RawURLEncoding
	input := enc.EncodeToString(header) + "." + enc.EncodeToString(payload)
	return input + "." + enc.EncodeToString(sum(key, []byte(input)))
}

// openHS256 returns the payload of a token in compact form, or ErrForged. The signature is judged first and always as
// HS256: what the header asks for never chooses how it is verified (RFC 8725 section 3.1).
func openHS256(key []byte, token string) ([]byte, error) {
	if len(token) > tokenMax {
		return nil, ErrForged
	}
	head, rest, _ := strings.Cut(token, ".")
	body, sig, ok := strings.Cut(rest, ".")
	// The texts are compared, not the bytes, so that a signature has one spelling.
	want := base64.RawURLEncoding.EncodeToString(sum(key, []byte(head+"."+body)))
	if !ok || !hmac.Equal([]byte(sig), []byte(want)) {
		return nil, ErrForged
	}
	header, err := decodeSegment(head)
	if err != nil {
		return nil, err
	}
	var h struct {
		Alg  string          `json:"alg"`
		Typ  string          `json:"typ"`
		Crit json.RawMessage `json:"crit"`
	}
	// An extension marked critical must be understood or refused (RFC 7515 section 4.1.11); we have none.
	if json.Unmarshal(header, &h) != nil || h.Alg != "HS256" || h.Crit != nil || !strings.EqualFold(h.Typ, "JWT") && h.Typ != "" {
		return nil, ErrForged
	}
	return decodeSegment(body)
}

func decodeSegment(s string) ([]byte, error) {
	data, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return nil, ErrForged
	}
	return data, nil
}
