package keyring

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestRotation(t *testing.T) {
	t.Parallel()
	former := testRing(t)
	next := bytes.Repeat([]byte{9}, MasterSize)
	both, err := New(next, bytes.Repeat([]byte{7}, MasterSize))
	if err != nil {
		t.Fatal(err)
	}
	only, err := New(next)
	if err != nil {
		t.Fatal(err)
	}
	plain, row := []byte("secret"), []byte("row 1")
	sealed, err := former.Seal("dkim", plain, row)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := both.Open("dkim", sealed, row); err != nil || !bytes.Equal(got, plain) {
		t.Errorf("the rotated keyring opens %q, %v", got, err)
	}
	if _, err := only.Open("dkim", sealed, row); !errors.Is(err, ErrUnsealable) {
		t.Errorf("the new key alone: %v", err)
	}
	again, err := both.Reseal("dkim", sealed, row)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := only.Open("dkim", again, row); err != nil || !bytes.Equal(got, plain) {
		t.Errorf("resealed: %q, %v", got, err)
	}
	if twice, err := both.Reseal("dkim", again, row); twice != nil || err != nil {
		t.Errorf("sealed with the current key already: %x, %v", twice, err)
	}
	if _, err := only.Reseal("dkim", sealed, row); !errors.Is(err, ErrUnsealable) {
		t.Errorf("resealed without the former key: %v", err)
	}

	now := time.Now()
	if _, err := both.VerifyLasting("link", former.Sign("link", time.Time{}, "a")); err != nil {
		t.Errorf("a former link: %v", err)
	}
	if _, err := only.VerifyLasting("link", former.Sign("link", time.Time{}, "a")); err == nil {
		t.Error("a former link is valid without the former key")
	}
	// Somebody who has seen the former key could make tokens with it.
	for _, expires := range []time.Time{{}, now.Add(time.Hour)} {
		if _, err := both.Verify("download", former.Sign("download", expires, "a"), now); !errors.Is(err, ErrForged) {
			t.Errorf("a token of the former key until %v: %v", expires, err)
		}
	}
	cookie, err := former.Seal("cookie", plain, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := both.OpenToken("cookie", cookie, nil); !errors.Is(err, ErrUnsealable) {
		t.Errorf("a cookie of the former key: %v", err)
	}
	token, err := former.JWT("share", map[string]any{}, now, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if err := both.VerifyJWT("share", token, now, nil); !errors.Is(err, ErrForged) {
		t.Errorf("a JWT of the former key: %v", err)
	}
	tag := former.Tag("path", row, 10)
	if !both.TagMatches("path", row, tag) || only.TagMatches("path", row, tag) {
		t.Error("a former tag")
	}
	if bytes.Equal(both.Tag("path", row, 10), tag) || !bytes.Equal(both.Tags("path", row, 10)[1], tag) {
		t.Error("new tags must be of the new key")
	}
	if both.Check() != only.Check() || !both.Matches(former.Check()) || only.Matches(former.Check()) {
		t.Error("check values")
	}
}

func TestRotateFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "secret.key")
	if err := Rotate(path); err == nil {
		t.Error("a file that does not exist was rotated")
	}
	first, _, err := LoadOrCreate(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := 2; n <= 3; n++ {
		if err := Rotate(path); err != nil {
			t.Fatal(err)
		}
		k, err := Load(path)
		if err != nil || len(k.Checks()) != n || k.Check() == first.Check() || !k.Matches(first.Check()) {
			t.Errorf("%d keys: %v", n, err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Parse(strings.ReplaceAll(string(text), "\n", ",")); err != nil {
		t.Errorf("keys with commas: %v", err)
	}
	if _, err := Parse(string(text) + "abc"); err == nil || !strings.Contains(err.Error(), "key 4") {
		t.Errorf("a wrong fourth key: %v", err)
	}
}
