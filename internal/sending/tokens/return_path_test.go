package tokens

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/keyring"
)

func TestReturnPath(t *testing.T) {
	t.Parallel()
	keys, of := testKeys(t, 1), Ref{77, id.New()}
	local := ReturnPath(keys, of, "example.net")
	if len(local) > 64 || local != strings.ToLower(local) {
		t.Errorf("return path %q", local)
	}
	if found := regexp.MustCompile(ProofPattern).FindString("<" + local + "@"); found != local {
		t.Errorf("of the return path %s the pattern matches %q", local, found)
	}
	if other := ReturnPath(keys, of, "example.com"); other == local {
		t.Error("two destinations share a return path")
	}
	for _, l := range []string{local, strings.ToUpper(local)} {
		if got, ok := ParseReturnPath(keys, l); !ok || got != of {
			t.Errorf("%q is of %v, %v", l, got, ok)
		}
	}
	for _, forged := range []string{"", "b-", "bounces", local[1:], local + "a", local[:len(local)-1], "c" + local[1:],
		local[:10] + "a" + local[11:], local[:10] + "b" + local[11:], local[:40] + "=" + local[41:]} {
		if got, ok := ParseReturnPath(keys, forged); ok && forged != local {
			t.Errorf("%q is taken for that of %v", forged, got)
		}
	}
	if _, ok := ParseReturnPath(testKeys(t, 2), local); ok {
		t.Error("another installation's return path is taken for ours")
	}
}

// A feedback value has the same form as a return path, but neither of them is accepted in place of the other.
func TestFeedback(t *testing.T) {
	t.Parallel()
	keys, of := testKeys(t, 1), Ref{77, id.New()}
	value := Feedback(keys, of, "example.net")
	if got, ok := ParseFeedback(keys, strings.ToUpper(value)); !ok || got != of {
		t.Errorf("%q is of %v, %v", value, got, ok)
	}
	if value == Feedback(keys, of, "example.com") {
		t.Error("two destinations share a proof")
	}
	for _, forged := range []string{"", "f-", value[2:], "b" + value[1:], "f" + ReturnPath(keys, of,
		"example.net")[1:], value[:10] + "0" + value[11:]} {
		if _, ok := ParseFeedback(keys, forged); ok {
			t.Errorf("%q proves something", forged)
		}
		if _, ok := ParseReturnPath(keys, forged); ok {
			t.Errorf("%q is a return path", forged)
		}
	}
}

// Without the key, an attacker cannot find two domains with the same return path.
func TestHintsAreKeyed(t *testing.T) {
	t.Parallel()
	of := Ref{77, id.New()}
	hint := func(keys *keyring.Keyring, domain string) string {
		return ReturnPath(keys, of, domain)[34:38]
	}
	same := 0
	for i := range 100 {
		if domain := fmt.Sprintf("d%d.example", i); hint(testKeys(t, 1), domain) == hint(testKeys(t, 2), domain) {
			same++
		}
	}
	if same > 5 {
		t.Errorf("%d of 100 hints do not depend on the key", same)
	}
}

func FuzzParseReturnPath(f *testing.F) {
	keys := testKeys(f, 1)
	f.Add(ReturnPath(keys, Ref{77, id.New()}, "example.net"))
	f.Add("b-")
	f.Add("b-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")
	f.Add("bounces")
	f.Fuzz(func(t *testing.T, local string) {
		of, ok := ParseReturnPath(keys, local)
		if !ok {
			return
		}
		if !id.Valid(of.EmailID) || len(local) > 64 {
			t.Errorf("%q is of %v", local, of)
		}
	})
}

// The last base32 character of a return path has unused bits. A return path in which unused bits are set is rejected.
func TestReturnPathUnusedBits(t *testing.T) {
	keys, of := testKeys(t, 1), Ref{77, id.New()}
	local := ReturnPath(keys, of, "example.net")
	for _, c := range "abcdefghijklmnopqrstuvwxyz234567" {
		other := local[:len(local)-1] + string(c)
		if _, ok := ParseReturnPath(keys, other); ok != (other == local) {
			t.Errorf("%s is accepted: %v; the return path is %s", other, ok, local)
		}
	}
	if got := ReturnPath(keys, Ref{77, "no id"}, "example.net"); got != "bounces" {
		t.Errorf("an email without a UUID has the return path %s", got)
	}
}
