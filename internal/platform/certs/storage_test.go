package certs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/keyring"
	"github.com/postrider/postrider/internal/platform/reseal"
)

func TestStorage(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, ctx := testStorage(t, d), t.Context()
		for _, key := range []string{"a/b/x.key", "a/b/x.crt", "a/b-c/y", "a/b.d", "a/b0", "e"} {
			if err := s.Store(ctx, key, []byte("secret of "+key)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Store(ctx, "e", []byte("changed")); err != nil {
			t.Fatal(err)
		}
		if v, err := s.Load(ctx, "e"); err != nil || string(v) != "changed" {
			t.Errorf("e is %q, %v", v, err)
		}
		list := func(prefix string, recursive bool, want ...string) {
			t.Helper()
			got, err := s.List(ctx, prefix, recursive)
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" || (err != nil) != (len(want) == 0) {
				t.Errorf("list of %s: %v %s", prefix, err, diff)
			}
		}
		list("a/b", true, "a/b/x.crt", "a/b/x.key")
		list("a", false, "a/b", "a/b-c", "a/b.d", "a/b0")
		list("a", true, "a/b-c/y", "a/b.d", "a/b/x.crt", "a/b/x.key", "a/b0")
		list("z", true)
		if i, err := s.Stat(ctx, "a/b"); err != nil || i.IsTerminal {
			t.Errorf("the folder is %+v, %v", i, err)
		}
		if i, err := s.Stat(ctx, "a/b.d"); err != nil || !i.IsTerminal || d.Now().Sub(i.Modified).Abs() > time.Minute {
			t.Errorf("the file is %+v, %v", i, err)
		}
		if err := errors.Join(s.Delete(ctx, "a/b"), s.Delete(ctx, "a/none")); err != nil {
			t.Error(err)
		}
		list("a", true, "a/b-c/y", "a/b.d", "a/b0")
		for key, want := range map[string]bool{"a/b/x.key": false, "a/b": false, "a/b-c": true, "a/b0": true} {
			if s.Exists(ctx, key) != want {
				t.Errorf("%s exists: %v", key, !want)
			}
		}
		if _, err := s.Load(ctx, "a/b/x.key"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a deleted value: %v", err)
		}
		s.Close()
		if _, err := s.Load(ctx, "e"); !errors.Is(err, errClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// Values are sealed for their path, so a reader of the database learns no key, and cannot exchange two keys.
func TestStorageSeals(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, ctx := testStorage(t, d), t.Context()
		if err := errors.Join(s.Store(ctx, "one", []byte("PRIVATE KEY one")),
			s.Store(ctx, "two", []byte("PRIVATE KEY two"))); err != nil {
			t.Fatal(err)
		}
		sealed, err := s.get(ctx, "one")
		if err != nil || bytes.Contains(sealed, []byte("PRIVATE")) {
			t.Errorf("the stored value is %q, %v", sealed, err)
		}
		if err := s.put(ctx, "two", sealed); err != nil {
			t.Fatal(err)
		}
		if v, err := s.Load(ctx, "two"); !errors.Is(err, keyring.ErrUnsealable) {
			t.Errorf("a moved value was read: %q, %v", v, err)
		}
	})
}

func TestLocks(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		one, two, ctx := testStorage(t, d), testStorage(t, d), t.Context()
		if err := one.Lock(ctx, "a"); err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		if err := two.Lock(short, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a held lock: %v", err)
		}
		if err := two.Lock(ctx, "b"); err != nil {
			t.Errorf("another lock: %v", err)
		}
		got := make(chan error)
		go func() { got <- two.Lock(ctx, "a") }()
		if err := one.Unlock(ctx, "a"); err != nil {
			t.Error(err)
		}
		if err := <-got; err != nil {
			t.Errorf("a released lock: %v", err)
		}
		if err := one.Unlock(ctx, "a"); err == nil {
			t.Error("a lock was released by a holder that had lost it")
		}
		two.Close() // a node that stops releases its locks
		if err := errors.Join(one.Lock(ctx, "a"), one.Lock(ctx, "b")); err != nil {
			t.Error(err)
		}
	})
}

// A lock ends soon after its holder was killed, and not before: until then the holder extends it.
func TestLockOfKilledHolder(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, ctx := testStorage(t, d), t.Context()
		const killed = "a holder that extends nothing"
		if ok, err := s.take(ctx, "a", killed); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if ok, err := s.take(ctx, "a", "other"); ok || err != nil {
			t.Errorf("a lock that was just taken: %v, %v", ok, err)
		}
		err := d.Update(ctx, func(tx *db.Tx) error { // as if lockTime had almost passed
			_, err := tx.Exec(ctx, `UPDATE certificate_locks SET expires_at = $1`, db.Micros(tx.Now().Add(time.Second/5)))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Lock(ctx, "a"); err != nil {
			t.Errorf("a lock that ended: %v", err)
		}
		if ok, err := s.prolong(ctx, "a", killed); ok || err != nil {
			t.Errorf("the killed holder extended a lock that it had lost: %v, %v", ok, err)
		}
	})
}

func TestFailures(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, ctx := testStorage(t, d), t.Context()
		if f, err := s.failureOf(ctx, host); err != nil || f.count != 0 {
			t.Errorf("at first: %+v, %v", f, err)
		}
		for i, want := range []time.Duration{2 * time.Minute, 10 * time.Minute, time.Hour} {
			least := time.Duration(0)
			if i == 2 {
				least = time.Hour
			}
			f, err := s.fail(ctx, host, "no reason", least)
			if err != nil || f.count != i+1 || f.retryAt.Sub(f.failedAt) != want {
				t.Errorf("failure %d: %+v, %v", i+1, f, err)
			}
		}
		if err := s.soonen(ctx, []string{host, "other.test"}, soonAfterStart); err != nil {
			t.Error(err)
		}
		all, others, err := s.failures(ctx, []string{host}, 10)
		if err != nil || len(all) != 1 || len(others) > 0 || all[0].retryAt.Sub(all[0].failedAt) != soonAfterStart ||
			all[0].reason != "no reason" {
			t.Errorf("after a start: %+v, %v", all, err)
		}
		if err := s.succeed(ctx, host); err != nil {
			t.Error(err)
		}
		for i := range 20 { // names before the installation's own
			if _, err := s.fail(ctx, fmt.Sprintf("a%d.customer.test", i), "another reason", 0); err != nil {
				t.Fatal(err)
			}
		}
		if all, others, err := s.failures(ctx, nil, 10); err != nil || len(all) > 0 || len(others) != 10 {
			t.Errorf("after a success: %+v, %d others, %v", all, len(others), err)
		}
		if _, err := s.fail(ctx, host, "own reason", 0); err != nil {
			t.Fatal(err)
		}
		if all, others, err := s.failures(ctx, []string{host}, 10); err != nil || len(all) != 1 || len(others) != 10 {
			t.Errorf("the own host among many: %+v, %d others, %v", all, len(others), err)
		}
	})
	if waitAfter(100) != waitMax || waitAfter(0) != waitAfter(1) {
		t.Error("the waits do not end")
	}
}

// After a rotation of the secret key, all values are sealed with the new one, except those whose key is lost.
func TestReseal(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, ctx := testStorage(t, d), t.Context()
		for i := range 120 {
			if err := s.Store(ctx, fmt.Sprintf("a/%d", i), []byte("secret")); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.put(ctx, "lost", []byte("no seal")); err != nil {
			t.Fatal(err)
		}
		next := bytes.Repeat([]byte{9}, keyring.MasterSize)
		both, errBoth := keyring.New(next, make([]byte, keyring.MasterSize))
		only, errOnly := keyring.New(next)
		if err := errors.Join(errBoth, errOnly); err != nil {
			t.Fatal(err)
		}
		for _, want := range []reseal.Report{{Resealed: 120, Lost: 1}, {Lost: 1}} {
			if done, err := Reseal(ctx, d, both); err != nil || done != want {
				t.Errorf("%+v, %v; want %+v", done, err, want)
			}
		}
		rotated := NewStorage(d, only, s.log)
		defer rotated.Close()
		if v, err := rotated.Load(ctx, "a/119"); err != nil || string(v) != "secret" {
			t.Errorf("with the new key: %q, %v", v, err)
		}
	})
}
