package keyring

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSignVerify(t *testing.T) {
	t.Parallel()
	k := testRing(t)
	now := time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)
	tests := []struct {
		name    string
		expires time.Time
		parts   []string
		at      time.Time
		want    error
	}{
		{"never expires", time.Time{}, []string{"a", "b"}, now.AddDate(900, 0, 0), nil},
		{"no parts", time.Time{}, nil, now, nil},
		{"empty parts", time.Time{}, []string{"", "", "x", ""}, now, nil},
		{"any bytes", time.Time{}, []string{"é\x00\xff", "https://x.test/?a=b&c"}, now, nil},
		{"in time", now.Add(time.Hour), []string{"a"}, now.Add(time.Hour - time.Second), nil},
		{"at its expiry", now.Add(time.Hour), []string{"a"}, now.Add(time.Hour), ErrExpired},
		{"after it", now.Add(time.Hour), []string{"a"}, now.AddDate(1, 0, 0), ErrExpired},
		{"expired before 1970", time.Unix(-5, 0), []string{"a"}, now, ErrExpired},
		{"expired at 1970", time.Unix(0, 0), []string{"a"}, now, ErrExpired},
	}
	urlSafe := regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			token := k.Sign("click", tt.expires, tt.parts...)
			if !urlSafe.MatchString(token) {
				t.Errorf("token %q is not safe in a URL", token)
			}
			got, err := k.Verify("click", token, tt.at)
			if !errors.Is(err, tt.want) {
				t.Fatalf("Verify: %v, want %v", err, tt.want)
			}
			if tt.want == nil && cmp.Diff(tt.parts, got) != "" {
				t.Errorf("parts (-want +got):\n%s", cmp.Diff(tt.parts, got))
			}
			if _, err := k.Verify("unsubscribe", token, tt.at); err != ErrForged {
				t.Errorf("for another purpose: %v, want ErrForged", err)
			}
		})
	}
}

func TestVerifyForged(t *testing.T) {
	t.Parallel()
	k := testRing(t)
	now := time.Unix(1_800_000_000, 0)
	// The base64 encoding of 20 bytes has 27 characters, and the last character has two unused bits.
	token := k.Sign("click", time.Time{}, "")
	for i := range token {
		bent := token[:i] + string(token[i]^1) + token[i+1:]
		if _, err := k.Verify("click", bent, now); err != ErrForged {
			t.Errorf("character %d changed: %v, want ErrForged", i, err)
		}
	}
	moved := k.Sign("click", time.Time{}, "ab", "c")
	if moved == k.Sign("click", time.Time{}, "a", "bc") {
		t.Error("parts that are cut elsewhere give the same token")
	}
	for _, bad := range []string{"", "A", "AAAA", token + "=", token + "A", token + "\n", "\n" + token, token[:10] +
		"\r\n" + token[10:], " " + token,
		strings.Repeat("A", 10_000), token[:len(token)-1]} {
		if _, err := k.Verify("click", bad, now); err != ErrForged {
			t.Errorf("Verify(%.40q): %v, want ErrForged", bad, err)
		}
	}
}

func FuzzVerify(f *testing.F) {
	k := testRing(f)
	now := time.Unix(1_800_000_000, 0)
	good := k.Sign("click", time.Time{}, "one", "two")
	f.Add(good)
	f.Add("")
	f.Add(good[:8])
	f.Add(strings.ToLower(good))
	f.Fuzz(func(t *testing.T, token string) {
		if parts, err := k.Verify("click", token, now); err == nil && token != good {
			t.Errorf("%q was taken for genuine: %q", token, parts)
		}
	})
}

// FuzzSplitParts passes arbitrary data to the parser, which normally receives only signed data.
func FuzzSplitParts(f *testing.F) {
	f.Add([]byte{1, 'a', 0, 2, 'b', 'c'})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 'a'})
	f.Add([]byte{5, 'a'})
	f.Fuzz(func(t *testing.T, data []byte) {
		parts, err := splitParts(data)
		size := 0
		for _, p := range parts {
			size += len(p) + 1
		}
		if err == nil && size > len(data) {
			t.Errorf("%d bytes gave parts of %d", len(data), size)
		}
	})
}
