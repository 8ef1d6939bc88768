package emails_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/emails"
	"github.com/postrider/postrider/internal/id"
	"github.com/postrider/postrider/internal/keyring"
)

func testKeys(t testing.TB, seed byte) *keyring.Keyring {
	t.Helper()
	k, err := keyring.New(bytes.Repeat([]byte{seed}, keyring.MasterSize))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestReturnPath(t *testing.T) {
	t.Parallel()
	keys, emailID := testKeys(t, 1), id.New()
	local := emails.ReturnPath(keys, emailID, "example.net")
	if len(local) > 64 || local != strings.ToLower(local) {
		t.Errorf("return path %q", local)
	}
	if other := emails.ReturnPath(keys, emailID, "example.com"); other == local {
		t.Error("two destinations share a return path")
	}
	for _, l := range []string{local, strings.ToUpper(local)} {
		if got, ok := emails.ParseReturnPath(keys, l); !ok || got != emailID {
			t.Errorf("%q is of %q, %v", l, got, ok)
		}
	}
	for _, forged := range []string{"", "b-", "bounces", local[1:], local + "a", local[:len(local)-1], "c" + local[1:],
		local[:10] + "a" + local[11:], local[:10] + "b" + local[11:], local[:40] + "=" + local[41:]} {
		if got, ok := emails.ParseReturnPath(keys, forged); ok && forged != local {
			t.Errorf("%q is taken for that of %s", forged, got)
		}
	}
	if _, ok := emails.ParseReturnPath(testKeys(t, 2), local); ok {
		t.Error("another installation's return path is taken for ours")
	}
}

func FuzzParseReturnPath(f *testing.F) {
	keys := testKeys(f, 1)
	f.Add(emails.ReturnPath(keys, id.New(), "example.net"))
	f.Add("b-")
	f.Add("b-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")
	f.Add("bounces")
	f.Fuzz(func(t *testing.T, local string) {
		emailID, ok := emails.ParseReturnPath(keys, local)
		if !ok {
			return
		}
		if !id.Valid(emailID) || len(local) > 64 {
			t.Errorf("%q is of %q", local, emailID)
		}
	})
}
