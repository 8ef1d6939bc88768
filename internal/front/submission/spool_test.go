package submission

import (
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/mail/smtpserver"
)

// A spool file has no name in the folder, but can still be written and read.
func TestSpoolFilesHaveNoName(t *testing.T) {
	folder := t.TempDir()
	s, err := newSpool(folder)
	if err != nil {
		t.Fatal(err)
	}
	f, err := s.file()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if entries, err := os.ReadDir(folder); err != nil || len(entries) != 0 {
		t.Errorf("%v, %v", entries, err)
	}
	if _, err := io.WriteString(f, "Hello."); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 6)
	if _, err := f.ReadAt(got, 0); err != nil || string(got) != "Hello." {
		t.Errorf("%q, %v", got, err)
	}
	if info, err := f.Stat(); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// A single team cannot use all of the slots for large messages.
func TestTeamsShareSlots(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, err := newService(Config{Spool: folder}, Deps{})
		if err != nil {
			t.Fatal(err)
		}
		read := func(team string) (func(), error) {
			c := &session{s: s, actor: teams.Actor{TeamID: team}}
			raw, done, err := c.read(t.Context(), strings.NewReader(strings.Repeat("x", 2*smallMessage)))
			if err == nil && len(raw) != 2*smallMessage {
				t.Errorf("%d bytes", len(raw))
			}
			return done, err
		}
		start := time.Now()
		var all []func()
		for {
			done, err := read("greedy")
			if err != nil {
				if r, ok := err.(*smtpserver.Refusal); !ok || r.Code != 451 {
					t.Fatal(err)
				}
				break
			}
			all = append(all, done)
		}
		if waited := time.Since(start); len(all) < largeMessages/2 || len(all) >= largeMessages ||
			waited != largeMessageWait {
			t.Errorf("one team has %d slots of %d, after %v", len(all), largeMessages, waited)
		}
		start = time.Now()
		done, err := read("modest")
		if err != nil || time.Since(start) != 0 {
			t.Fatalf("another team waits %v, %v", time.Since(start), err)
		}
		done()
		for _, done := range all {
			done()
		}
		if !s.largeSlots.TryAcquire("greedy", largeMessages/2) {
			t.Error("places are not given back")
		}
	})
}
