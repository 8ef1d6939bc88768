package keyring

import (
	"bytes"
	"crypto/hmac"
	"encoding/hex"
	"errors"
	"slices"
	"testing"
)

func testRing(t testing.TB) *Keyring {
	t.Helper()
	k, err := New(bytes.Repeat([]byte{7}, MasterSize))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestNewRefusesOtherLengths(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 16, 31, 33, 64} {
		if _, err := New(make([]byte, n)); err == nil {
			t.Errorf("a master key of %d bytes was taken", n)
		}
	}
}

func TestSealOpen(t *testing.T) {
	t.Parallel()
	k := testRing(t)
	other, err := New(bytes.Repeat([]byte{8}, MasterSize))
	if err != nil {
		t.Fatal(err)
	}
	plain, ctx := []byte("a DKIM key"), []byte("domain 1")
	sealed, err := k.Seal("dkim", plain, ctx)
	if err != nil {
		t.Fatal(err)
	}
	if len(sealed) != len(plain)+29 {
		t.Errorf("sealed to %d bytes, want %d", len(sealed), len(plain)+29)
	}
	if bytes.Contains(sealed, plain) {
		t.Error("the plain text shows in the sealed one")
	}
	again, err := k.Seal("dkim", plain, ctx)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(sealed, again) {
		t.Error("sealing twice gave the same bytes: the nonce is not random")
	}
	got, err := k.Open("dkim", sealed, ctx)
	if err != nil || !bytes.Equal(got, plain) {
		t.Fatalf("Open = %q, %v; want %q", got, err, plain)
	}

	for i := range sealed {
		bent := slices.Clone(sealed)
		bent[i] ^= 1
		if _, err := k.Open("dkim", bent, ctx); !errors.Is(err, ErrUnsealable) {
			t.Errorf("byte %d changed: %v, want ErrUnsealable", i, err)
		}
	}
	tests := []struct {
		name    string
		ring    *Keyring
		purpose string
		sealed  []byte
		context string
	}{
		{"other key", other, "dkim", sealed, "domain 1"},
		{"other purpose", k, "webhook", sealed, "domain 1"},
		{"other context", k, "dkim", sealed, "domain 2"},
		{"no context", k, "dkim", sealed, ""},
		{"empty", k, "dkim", nil, "domain 1"},
		{"version alone", k, "dkim", sealed[:1], "domain 1"},
		{"cut", k, "dkim", sealed[:len(sealed)-1], "domain 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got, err := tt.ring.Open(tt.purpose, tt.sealed, []byte(tt.context)); !errors.Is(err, ErrUnsealable) {
				t.Errorf("Open = %q, %v; want ErrUnsealable", got, err)
			}
		})
	}
}

func TestKeysDifferByUseAndPurpose(t *testing.T) {
	t.Parallel()
	k := testRing(t)
	seen := map[string]string{}
	for _, use := range []string{"seal", "sign", "tag", "jwt"} {
		for _, purpose := range []string{"", "a", "ab", "b"} {
			key := hex.EncodeToString(k.key(use, purpose))
			if was, ok := seen[key]; ok {
				t.Errorf("%s/%s has the key of %s", use, purpose, was)
			}
			seen[key] = use + "/" + purpose
		}
	}
}

// TestKeysStay fails if key derivation changes, because a change would make all sealed data unreadable.
func TestKeysStay(t *testing.T) {
	t.Parallel()
	k := testRing(t)
	if got := hex.EncodeToString(k.Tag("bounce", []byte("x"), 8)); got != wantTag {
		t.Errorf("Tag = %s, want %s", got, wantTag)
	}
	sealed, err := hex.DecodeString(wantSealed)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := k.Open("dkim", sealed, []byte("domain 1")); err != nil || string(got) != "a DKIM key" {
		t.Errorf("Open = %q, %v; want the text that was sealed long ago", got, err)
	}
}

func TestTag(t *testing.T) {
	t.Parallel()
	k := testRing(t)
	long := k.Tag("bounce", []byte("e1"), 32)
	short := k.Tag("bounce", []byte("e1"), 10)
	if len(short) != 10 || !hmac.Equal(short, long[:10]) {
		t.Errorf("a short tag is not the beginning of the long one: %x, %x", short, long)
	}
	if bytes.Equal(short, k.Tag("bounce", []byte("e2"), 10)) ||
		bytes.Equal(short, k.Tag("unsubscribe", []byte("e1"), 10)) {
		t.Error("tags of other data or another purpose are the same")
	}
}

func BenchmarkTag(b *testing.B) {
	k := testRing(b)
	for b.Loop() {
		k.Tag("bounce", []byte("0190f6a1-0000-7000-8000-000000000000"), 10)
	}
}

// values that TestKeysStay expects, created by the first version of this package
const (
	wantTag    = "48417babdbe2bead"
	wantSealed = "0194641f09bfa45ce3f096e0643a4d4dbd2eff50f8321a1fea89067bbc2d89488f9fa9cc4c03e0"
)
