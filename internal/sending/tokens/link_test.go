package tokens

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/keyring"
	"github.com/postrider/postrider/internal/sending/render"
)

const (
	anEmail = "0190f6a1-0000-7000-8000-00000000000a"
	aHost   = "links.acme.example"
)

func testKeys(t testing.TB, seed byte) *keyring.Keyring {
	t.Helper()
	k, err := keyring.New(bytes.Repeat([]byte{seed}, keyring.MasterSize))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// linkToken returns the token for a link.
func linkToken(t testing.TB, keys *keyring.Keyring, of TrackedLink) string {
	t.Helper()
	k, ok := NewLinkMaker(keys, aHost, of.Ref, of.Position)
	if !ok {
		t.Fatalf("there are no tokens of email %q", of.EmailID)
	}
	defer k.Release()
	token, ok := k.Append(nil, []byte(of.URL))
	if !ok {
		t.Fatalf("a URL of %d bytes has no token", len(of.URL))
	}
	return string(token)
}

func TestLinks(t *testing.T) {
	keys := testKeys(t, 1)
	for _, want := range []TrackedLink{
		{Ref{77, anEmail}, -1, ""},
		{Ref{77, anEmail}, 0, ""},
		{Ref{77, anEmail}, MaxPosition, "https://a.example/?a=1&b=2"},
		{Ref{1<<31 - 1, id.New()}, 7,
			"https://ä.example/" + strings.Repeat("x", render.MaxTarget-len("https://ä.example/"))},
	} {
		token := linkToken(t, keys, want)
		if len(token) > LinkMax {
			t.Errorf("the token has %d characters", len(token))
		}
		if got, err := ReadLink(keys, token, aHost); err != nil || got != want {
			t.Errorf("read %+v, %v; want %+v", got, err, want)
		}
		got, err := ReadLink(testKeys(t, 2), token, aHost)
		if fault.KindOf(err) != fault.NotFound || got != (TrackedLink{}) {
			t.Errorf("with another key it is %+v, %v", got, err)
		}
	}
	for _, other := range []string{"", "links.other.example", "acme.example", aHost + "\x00"} {
		if got, err := ReadLink(keys, linkToken(t, keys, TrackedLink{Ref{77, anEmail}, 0, "https://a.example/"}),
			other); got != (TrackedLink{}) ||
			fault.KindOf(err) != fault.NotFound {
			t.Errorf("at the host %q it is %+v, %v", other, got, err)
		}
	}
	k, _ := NewLinkMaker(keys, aHost, Ref{77, anEmail}, 0)
	defer k.Release()
	if dst, ok := k.Append([]byte("before"), make([]byte, LinkMax)); ok || string(dst) != "before" {
		t.Errorf("a URL of %d bytes has a token of %d", LinkMax, len(dst))
	}
	if _, ok := NewLinkMaker(keys, aHost, Ref{77, "e"}, 0); ok {
		t.Error("an email without a UUID has tokens")
	}
}

// A token is rejected if any bit is altered or a character is added or removed.
func TestAlteredLink(t *testing.T) {
	keys := testKeys(t, 1)
	token := linkToken(t, keys, TrackedLink{Ref{77, anEmail}, 3, "https://shop.example/?a=1"})
	refused := func(altered string) {
		t.Helper()
		if got, err := ReadLink(keys, altered, aHost); fault.KindOf(err) != fault.NotFound || got != (TrackedLink{}) {
			t.Errorf("%q is read as %+v, %v", altered, got, err)
		}
	}
	for i := range len(token) {
		for bit := range 8 {
			altered := []byte(token)
			altered[i] ^= 1 << bit
			refused(string(altered))
		}
		refused(token[:i])
		refused(token[:i] + "\n" + token[i:])
		refused(token[:i] + "A" + token[i:])
	}
	data, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		t.Fatal(err)
	}
	for i := range data {
		for bit := range 8 {
			data[i] ^= 1 << bit
			refused(base64.RawURLEncoding.EncodeToString(data))
			data[i] ^= 1 << bit
		}
	}
	refused(token + "=")
	refused(token + strings.Repeat("A", LinkMax))
	// A token that was signed for another purpose is rejected.
	signed := data[: len(data)-macSize : len(data)-macSize]
	other := append(signed, keys.Tag("other", signed, macSize)...)
	refused(base64.RawURLEncoding.EncodeToString(other))
}

// FuzzReadLink checks that ReadLink accepts only tokens created by LinkMaker and returns the values from which they
// were created.
func FuzzReadLink(f *testing.F) {
	keys := testKeys(f, 1)
	f.Add(linkToken(f, keys, TrackedLink{Ref{77, anEmail}, 3, "https://shop.example/?a=1"}), "https://a.example/", 0, 1)
	f.Add("", "", -1, 0)
	f.Fuzz(func(t *testing.T, token, url string, position, flip int) {
		if got, err := ReadLink(keys, token, aHost); err == nil {
			if again := linkToken(t, keys, got); again != token {
				t.Errorf("%q is read as %+v, whose token is %q", token, got, again)
			}
		}
		if position < -1 || position > MaxPosition || len(url) > render.MaxTarget {
			return
		}
		made := []byte(linkToken(t, keys, TrackedLink{Ref{77, anEmail}, position, url}))
		want := TrackedLink{Ref{77, anEmail}, position, url}
		if got, err := ReadLink(keys, string(made), aHost); err != nil || got != want {
			t.Errorf("the token of %d and %q is read as %+v, %v", position, url, got, err)
		}
		made[uint(flip)/8%uint(len(made))] ^= 1 << (uint(flip) % 8)
		if got, err := ReadLink(keys, string(made), aHost); fault.KindOf(err) != fault.NotFound {
			t.Errorf("an altered token is read as %+v, %v", got, err)
		}
	})
}
