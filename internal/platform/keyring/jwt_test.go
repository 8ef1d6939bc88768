package keyring

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// rfcKey, rfcToken and rfcPayload are the example from RFC 7515 appendix A.1.
const (
	rfcKey     = "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow"
	rfcToken   = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
	rfcPayload = "{\"iss\":\"joe\",\r\n \"exp\":1300819380,\r\n \"http://example.com/is_root\":true}"
)

func TestJWTVector(t *testing.T) {
	t.Parallel()
	key, err := base64.RawURLEncoding.DecodeString(rfcKey)
	if err != nil {
		t.Fatal(err)
	}
	if got := signHS256(key, []byte("{\"typ\":\"JWT\",\r\n \"alg\":\"HS256\"}"), []byte(rfcPayload)); got != rfcToken {
		t.Errorf("sign = %s\nwant   %s", got, rfcToken)
	}
}

const jwtHeader = `{"alg":"HS256","typ":"JWT"}`

// signHS256 creates tokens that the keyring would not create, in the compact form of RFC 7515 section 7.1.
func signHS256(key, header, payload []byte) string {
	enc := base64.RawURLEncoding
	input := enc.EncodeToString(header) + "." + enc.EncodeToString(payload)
	return input + "." + enc.EncodeToString(sum(key, []byte(input)))
}

type testClaims struct {
	Subject string `json:"sub"`
	Scope   string `json:"scope,omitempty"`
	Issued  int64  `json:"iat,omitempty"`
	Expires int64  `json:"exp,omitempty"`
}

func TestJWT(t *testing.T) {
	t.Parallel()
	k := testRing(t)
	now := time.Unix(1_800_000_000, 999)
	token, err := k.JWT("oauth", testClaims{Subject: "team 1", Scope: "full"}, now, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	var got testClaims
	if err := k.VerifyJWT("oauth", token, now.Add(time.Hour-time.Second), &got); err != nil {
		t.Fatal(err)
	}
	want := testClaims{"team 1", "full", now.Unix(), now.Unix() + 3600}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
	if err := k.VerifyJWT("oauth", token, now.Add(time.Hour), nil); err != ErrExpired {
		t.Errorf("at its expiry: %v, want ErrExpired", err)
	}
	if err := k.VerifyJWT("session", token, now, nil); err != ErrForged {
		t.Errorf("for another purpose: %v, want ErrForged", err)
	}
	for i := range token {
		bent := token[:i] + string(token[i]^1) + token[i+1:]
		if err := k.VerifyJWT("oauth", bent, now, nil); err != ErrForged {
			t.Errorf("character %d changed: %v, want ErrForged", i, err)
		}
	}
	wrong := struct {
		Sub int `json:"sub"`
	}{}
	if err := k.VerifyJWT("oauth", token, now, &wrong); err == nil || errors.Is(err, ErrForged) {
		t.Errorf("claims of another shape: %v, want an error of decoding", err)
	}
}

func TestJWTRefusesToMake(t *testing.T) {
	t.Parallel()
	k := testRing(t)
	now := time.Unix(1_800_000_000, 0)
	for _, claims := range []any{nil, "text", 5, []int{1}, make(chan int)} {
		if _, err := k.JWT("oauth", claims, now, time.Hour); err == nil {
			t.Errorf("claims %T were taken", claims)
		}
	}
	if _, err := k.JWT("oauth", testClaims{}, now, 0); err == nil {
		t.Error("a token without life was made")
	}
}

// TestVerifyJWTRefuses creates tokens that JWT would never create, and signs them with the right key. VerifyJWT must
// reject such tokens, because a token's header must not determine the algorithm.
func TestVerifyJWTRefuses(t *testing.T) {
	t.Parallel()
	k := testRing(t)
	key := k.key("jwt", "oauth")
	now := time.Unix(1_800_000_000, 0)
	live := fmt.Sprintf(`{"exp":%d}`, now.Unix()+60)
	if err := k.VerifyJWT("oauth", signHS256(key, []byte(jwtHeader), []byte(live)), now, nil); err != nil {
		t.Fatalf("the token that the cases are bent from: %v", err)
	}
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." +
		base64.RawURLEncoding.EncodeToString([]byte(live)) + "."
	tests := []struct{ name, token string }{
		{"alg none, no signature", none},
		{"alg none, signed", signHS256(key, []byte(`{"alg":"none"}`), []byte(live))},
		{"alg RS256", signHS256(key, []byte(`{"alg":"RS256"}`), []byte(live))},
		{"alg hs256 in lower case", signHS256(key, []byte(`{"alg":"hs256"}`), []byte(live))},
		{"alg absent", signHS256(key, []byte(`{"typ":"JWT"}`), []byte(live))},
		{"critical extension", signHS256(key, []byte(`{"alg":"HS256","crit":["b64"],"b64":false}`), []byte(live))},
		{"another type", signHS256(key, []byte(`{"alg":"HS256","typ":"dpop+jwt"}`), []byte(live))},
		{"header no object", signHS256(key, []byte(`"HS256"`), []byte(live))},
		{"no exp", signHS256(key, []byte(jwtHeader), []byte(`{"sub":"x"}`))},
		{"exp a text", signHS256(key, []byte(jwtHeader), []byte(`{"exp":"1900000000"}`))},
		{"payload no object", signHS256(key, []byte(jwtHeader), []byte(`7`))},
		{"payload no JSON", signHS256(key, []byte(jwtHeader), []byte(`{`))},
		{"two segments", "a.b"},
		{"empty", ""},
		{"dots alone", ".."},
		{"four segments", signHS256(key, []byte(jwtHeader), []byte(live)) + ".x"},
		{"very long", strings.Repeat("a.", 9000)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if err := k.VerifyJWT("oauth", tt.token, now, nil); err != ErrForged {
				t.Errorf("VerifyJWT: %v, want ErrForged", err)
			}
		})
	}
}

func FuzzVerifyJWT(f *testing.F) {
	k := testRing(f)
	now := time.Unix(1_800_000_000, 0)
	good, err := k.JWT("oauth", testClaims{Subject: "x"}, now, time.Hour)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(rfcToken)
	f.Add("..")
	f.Fuzz(func(t *testing.T, token string) {
		if err := k.VerifyJWT("oauth", token, now, nil); err == nil && token != good {
			t.Errorf("%q was taken for genuine", token)
		}
	})
}
