package users

import (
	"testing"
	"time"

	"github.com/go-webauthn/webauthn/protocol"

	"github.com/postrider/postrider/internal/lib/fault"
)

// FuzzAssertion checks that parsing an arbitrary passkey response returns a valid structure or a fault and does not
// panic.
func FuzzAssertion(f *testing.F) {
	for _, seed := range []string{"", "{}", "null", "[]", `{"id":"AA","rawId":"AA","type":"public-key","response":{}}`,
		`{"id":"AAAA","rawId":"AAAA","type":"public-key","response":{"authenticatorData":
		"SZYN5YgOjGh0NBcPZHZgW4_krrmihjLHmVzzuoMdl2MFAAAAAQ","clientDataJSON":
		"eyJ0eXBlIjoid2ViYXV0aG4uZ2V0IiwiY2hhbGxlbmdlIjoiQUFBQSIsIm9yaWdpbiI6Imh0dHBzOi8vYSJ9","signature":"AAAA",
		"userHandle":"AAAA"}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, response []byte) {
		parsed, err := parseAssertion(response)
		if err != nil && fault.KindOf(err) != fault.BadCredential {
			t.Errorf("error %v", err)
		}
		if err == nil && parsed == nil {
			t.Error("neither an answer nor an error")
		}
		_, _ = protocol.ParseCredentialCreationResponseBytes(response)
	})
}

// FuzzCode checks that only the correct TOTP code is accepted.
func FuzzCode(f *testing.F) {
	const secret = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ" // test secret from RFC 6238; its code at 59 s is 287082
	at := time.Unix(59, 0)
	for _, seed := range []string{"", "287082", " 287-082 ", "000000", "287083", "\xff\xff\xff\xff\xff\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, code string) {
		step, err := matchSecret(secret, code, at, 0)
		if err != nil {
			t.Fatal(err)
		}
		digits := ""
		for _, r := range code {
			if r != ' ' && r != '-' {
				digits += string(r)
			}
		}
		// The times 29 s, 59 s and 89 s are in the TOTP steps 0, 1 and 2. No code is valid in step 0.
		want := map[string]int64{"287082": 1, "359152": 2}[digits]
		if step != want {
			t.Errorf("%q matches step %d, want %d", code, step, want)
		}
	})
}
