package blob

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/platform/blob/blobtest"
)

// each runs a test with every kind of store.
func each(t *testing.T, test func(t *testing.T, s *Store)) {
	t.Helper()
	places := map[string]func(t *testing.T) string{
		"folder": func(t *testing.T) string { return t.TempDir() + "/deep/blobs" },
		"file":   func(t *testing.T) string { return "file://" + t.TempDir() },
		"mem":    func(*testing.T) string { return "mem://" },
		"fake":   func(t *testing.T) string { return blobtest.New(t).URL },
		"s3":     func(t *testing.T) string { url, _ := blobtest.Versitygw(t); return url + "&prefix=of+a+test/" },
	}
	for _, name := range slices.Sorted(maps.Keys(places)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t, places[name](t)))
		})
	}
}

func open(t testing.TB, where string) *Store {
	t.Helper()
	s, err := Open(t.Context(), where)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func put(t testing.TB, s *Store, key, content string) {
	t.Helper()
	n, err := s.Put(t.Context(), key, strings.NewReader(content))
	if err != nil || n != int64(len(content)) {
		t.Fatalf("Put %s = %d, %v; want %d", key, n, err, len(content))
	}
}

func get(t testing.TB, s *Store, key string) string {
	t.Helper()
	r, err := s.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func list(t testing.TB, s *Store, prefix string) map[string]int64 {
	t.Helper()
	found := map[string]int64{}
	err := s.List(t.Context(), prefix, func(i Info) error {
		if i.Modified.IsZero() {
			t.Errorf("%s has no time", i.Key)
		}
		found[i.Key] = i.Size
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestStore(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *Store) {
		below, empty := "raw/1/att-0.pdf", "raw"
		if strings.HasSuffix(t.Name(), "/s3") { // the server cannot store both "a" and "a/b"
			below, empty = "raw/1-att-0.pdf", "empty"
		}
		put(t, s, "raw/1", "one")
		put(t, s, below, "below one")
		put(t, s, empty, "")
		put(t, s, strings.Repeat("k", MaxKey), "long")
		put(t, s, "att/2_x-y.z", "two")
		put(t, s, "raw/1", "one again")

		if got := get(t, s, "raw/1"); got != "one again" {
			t.Errorf("a key put again reads %q", got)
		}
		if got := get(t, s, empty); got != "" {
			t.Errorf("an empty blob reads %q", got)
		}
		want := map[string]int64{"raw/1": 9, below: 9}
		if diff := cmp.Diff(want, list(t, s, "raw/")); diff != "" {
			t.Errorf("List raw/ (-want +got):\n%s", diff)
		}
		if got := list(t, s, ""); len(got) != 5 {
			t.Errorf("List of all = %v, want 5 blobs", got)
		}

		for range 2 {
			if err := s.Delete(t.Context(), "raw/1"); err != nil {
				t.Errorf("Delete: %v", err)
			}
		}
		if _, err := s.Get(t.Context(), "raw/1"); !errors.Is(err, ErrNotFound) {
			t.Errorf("Get after Delete: %v, want ErrNotFound", err)
		}
		if got := get(t, s, below); got != "below one" {
			t.Errorf("the neighbour of a deleted blob reads %q", got)
		}
	})
}

func TestListStopsAndMayDelete(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *Store) {
		for _, k := range []string{"a", "b", "c"} {
			put(t, s, k, k)
		}
		stop, calls := errors.New("enough"), 0
		err := s.List(t.Context(), "", func(Info) error { calls++; return stop })
		if err != stop || calls != 1 {
			t.Errorf("List = %v after %d calls; want the error of fn after one", err, calls)
		}
		err = s.List(t.Context(), "", func(i Info) error { return s.Delete(t.Context(), i.Key) })
		if err != nil {
			t.Fatal(err)
		}
		if left := list(t, s, ""); len(left) != 0 {
			t.Errorf("left after the sweep: %v", left)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.List(ctx, "", func(Info) error { return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("List with an ended context: %v", err)
		}
	})
}

// Sweep passes pages of keys to its callback, and deletes old blobs that are not in use.
func TestSweep(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		const blobs = sweepPage + 3
		var kept []string
		for i := range blobs {
			key := fmt.Sprintf("swept/%04d", i)
			put(t, s, key, "x")
			if i%100 == 0 {
				kept = append(kept, key)
			}
		}
		put(t, s, "other/x", "x")
		asked := 0
		used := func(_ context.Context, keys []string) (some []string, err error) {
			asked++
			for _, key := range keys {
				if slices.Contains(kept, key) {
					some = append(some, key)
				}
			}
			return some, nil
		}
		if err := s.Sweep(t.Context(), "swept/", time.Now().Add(-time.Hour), used); err != nil || asked > 0 {
			t.Errorf("of what is new it asked %d times, %v", asked, err)
		}
		if err := s.Sweep(t.Context(), "swept/", time.Now().Add(time.Hour), used); err != nil || asked != 2 {
			t.Errorf("about %d blobs it asked %d times, %v", blobs, asked, err)
		}
		var left []string
		if err := s.List(t.Context(), "", func(b Info) error { left = append(left, b.Key); return nil }); err != nil {
			t.Fatal(err)
		}
		slices.Sort(left)
		if want := append([]string{"other/x"}, kept...); !slices.Equal(left, want) {
			t.Errorf("left are %v, want %v", left, want)
		}
		failed := errors.New("not now")
		err := s.Sweep(t.Context(), "", time.Now().Add(time.Hour), func(context.Context, []string) ([]string,
			error) {
			return nil, failed
		})
		if !errors.Is(err, failed) {
			t.Errorf("when it cannot be asked: %v", err)
		}
		get(t, s, "other/x")
	})
}

func TestPutThatFailsLeavesTheKeyAsItWas(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken pipe")
	each(t, func(t *testing.T, s *Store) {
		put(t, s, "a", "old")
		half := func() io.Reader { return io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken)) }
		if _, err := s.Put(t.Context(), "a", half()); !errors.Is(err, broken) {
			t.Errorf("Put of a broken reader: %v, want its error", err)
		}
		if _, err := s.Put(t.Context(), "b", half()); !errors.Is(err, broken) {
			t.Errorf("Put of a broken reader: %v, want its error", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		mid := io.MultiReader(strings.NewReader("half"), readerFunc(func([]byte) (int, error) { cancel(); return 0, nil }),
			strings.NewReader("rest"))
		if _, err := s.Put(ctx, "a", mid); !errors.Is(err, context.Canceled) {
			t.Errorf("Put with a context that ends: %v, want context.Canceled", err)
		}
		if got := get(t, s, "a"); got != "old" {
			t.Errorf("after failed Puts the blob reads %q", got)
		}
		if diff := cmp.Diff(map[string]int64{"a": 3}, list(t, s, "")); diff != "" {
			t.Errorf("blobs (-want +got):\n%s", diff)
		}
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestConcurrentPutsOfOneKey(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *Store) {
		const size = 100_000
		var wg sync.WaitGroup
		for i := range 8 {
			content := bytes.Repeat([]byte{byte('a' + i)}, size)
			wg.Go(func() {
				for range 5 {
					if _, err := s.Put(t.Context(), "raw/same", bytes.NewReader(content)); err != nil {
						t.Error(err)
					}
					got := get(t, s, "raw/same")
					if len(got) != size || strings.Trim(got, got[:1]) != "" {
						t.Error("a reader saw a mixture of two blobs")
					}
				}
			})
		}
		wg.Wait()
		if got := list(t, s, ""); len(got) != 1 {
			t.Errorf("blobs after all: %v, want one", got)
		}
	})
}

func TestKeys(t *testing.T) {
	t.Parallel()
	s := open(t, "mem://")
	bad := []string{"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/..", ".tmp/x", "a/.b", "A", "a b", "a=b",
		"a\\b", "a\x00", "é",
		"a\n", "c:x", strings.Repeat("k", MaxKey+1)}
	for _, key := range bad {
		if _, err := s.Put(t.Context(), key, strings.NewReader("x")); err == nil {
			t.Errorf("Put took the key %q", key)
		}
		if _, err := s.Get(t.Context(), key); err == nil || errors.Is(err, ErrNotFound) {
			t.Errorf("Get of the key %q: %v", key, err)
		}
		if err := s.Delete(t.Context(), key); err == nil {
			t.Errorf("Delete took the key %q", key)
		}
	}
	if err := s.List(t.Context(), "A", func(Info) error { return nil }); err == nil {
		t.Error("List took a prefix that no key can have")
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"", "gs://bucket", "file://relative/path", "file://", "file:///x?a=b",
		"http://x.test/"} {
		if s, err := Open(t.Context(), where); err == nil {
			t.Errorf("Open took %q: %v", where, s)
		}
	}
}

func FuzzCheckKey(f *testing.F) {
	for _, key := range []string{"raw/1", "a/../b", "", "a=b", ".x", "a//b", "a.b_c-d/9"} {
		f.Add(key)
	}
	root := f.TempDir()
	folder := &folder{root: root}
	f.Fuzz(func(t *testing.T, key string) {
		if CheckKey(key) != nil {
			return
		}
		rel, ok := strings.CutPrefix(folder.path(key), root+"/")
		if shard, name, ok2 := strings.Cut(rel, "/"); !ok || !ok2 || len(shard) != 2 || len(name) != len(key) ||
			strings.Contains(name, "/") {
			t.Errorf("key %q goes to %q", key, rel)
		}
	})
}

func BenchmarkPut10KB(b *testing.B) {
	content := make([]byte, 10<<10)
	rand.Read(content)
	keys := func() func() string {
		var mu sync.Mutex
		n := 0
		return func() string {
			mu.Lock()
			defer mu.Unlock()
			n++
			return "raw/" + strings.Repeat("0", n%7) + string(rune('a'+n%26)) + strings.Repeat("1", n/182%30)
		}
	}
	b.Run("one", func(b *testing.B) {
		s, key := open(b, b.TempDir()), keys()
		b.SetBytes(int64(len(content)))
		for b.Loop() {
			if _, err := s.Put(b.Context(), key(), bytes.NewReader(content)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("sixteen", func(b *testing.B) {
		s, key := open(b, b.TempDir()), keys()
		b.SetBytes(int64(len(content)))
		b.SetParallelism(8)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := s.Put(b.Context(), key(), bytes.NewReader(content)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
}
