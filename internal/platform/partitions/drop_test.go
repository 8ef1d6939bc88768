package partitions_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/partitions"
)

// closed is a store with a partition of a past day, and emails in it.
func closed(t *testing.T) (s *store, span partitions.Span, emails []string) {
	t.Helper()
	s = newStore(t)
	span.To = s.Now().Truncate(day).Add(-3 * day)
	span.From = span.To.Add(-day)
	for i := range 20 {
		emails = append(emails, s.email(at(span.From.Add(time.Duration(i)*time.Hour))))
	}
	s.empty("day", span.From)
	if n := len(s.spans("emails")); n != 1 {
		t.Fatalf("there are %d partitions", n)
	}
	return s, span, emails
}

// keep returns a function for Drop that keeps the given emails.
func keep(emails ...string) func(*db.Tx, string, string) ([]partitions.Kept, error) {
	var kept []partitions.Kept
	for _, x := range emails {
		kept = append(kept, partitions.Kept{Owner: x, ID: x}) // see store.email
	}
	return func(*db.Tx, string, string) ([]partitions.Kept, error) { return kept, nil }
}

func (s *store) drop(span partitions.Span, keep func(*db.Tx, string, string) ([]partitions.Kept, error)) error {
	return s.service("day").Drop(s.Context(), partitions.Emails, span, keep)
}

// remaining returns the number of emails and of events.
func (s *store) remaining() (counts [2]int) {
	s.Helper()
	if err := s.QueryRow(s.Context(), `SELECT (SELECT COUNT(*) FROM emails), (SELECT COUNT(*) FROM email_events)`).Scan(
		&counts[0], &counts[1]); err != nil {
		s.Fatal(err)
	}
	return counts
}

// A partition is dropped with its rows, except for the kept ones, which move to the default partition and can be
// changed and deleted there.
func TestDrop(t *testing.T) {
	t.Parallel()
	s, span, emails := closed(t)
	all, err := s.service("day").Closed(t.Context(), partitions.Emails, span.To)
	if err != nil || !slices.Equal(all, []partitions.Span{span}) {
		t.Errorf("closed are %v, %v", all, err)
	}
	if all, err := s.service("day").Closed(t.Context(), partitions.Emails, span.To.Add(-1)); err != nil || len(all) > 0 {
		t.Errorf("before the end of the day, closed are %v, %v", all, err)
	}
	young := s.email(at(span.To))
	if err := s.service("day").Learn(t.Context()); err != nil {
		t.Fatal(err)
	}
	for emailID, want := range map[string]string{emails[3]: "emails_" + s.where(emails[3]), young: "emails"} {
		if got := s.PartitionOf("emails", db.ID(emailID)); got != want {
			t.Errorf("statements name %s, want %s", got, want)
		}
	}
	failed := errors.New("not now")
	err = s.drop(span, func(*db.Tx, string, string) ([]partitions.Kept, error) { return nil, failed })
	if !errors.Is(err, failed) || s.remaining() != [2]int{21, 21} {
		t.Errorf("an error: %v, %v remain", err, s.remaining())
	}
	if err := s.drop(span, keep(emails[3], emails[5])); err != nil {
		t.Fatal(err)
	}
	if s.remaining() != [2]int{3, 3} || s.where(young) == "" {
		t.Errorf("%v remain", s.remaining())
	}
	for _, x := range []string{emails[3], emails[5]} {
		if name := s.where(x); name != "default" {
			t.Errorf("a kept email is in %s", name)
		}
		s.exec(`UPDATE emails SET rank = 5 WHERE id = $1`, x)
	}
	s.empty("day", span.To) // kept rows stay in the default partition
	if name := s.where(emails[3]); name != "default" {
		t.Errorf("a kept email is in %s", name)
	}
	s.exec(`DELETE FROM emails WHERE id = $1`, emails[3])
	if err := s.drop(span, keep()); err == nil || !strings.Contains(err.Error(), "no partition") {
		t.Errorf("a second drop: %v", err)
	}
	future := partitions.Span{From: s.Now().Truncate(day), To: s.Now().Truncate(day).Add(day)}
	s.make("day")
	if err := s.drop(future, keep()); err == nil || !strings.Contains(err.Error(), "has not ended") {
		t.Errorf("today is dropped: %v", err)
	}
}

// A drop of which any statement fails changes nothing, and the next one succeeds.
func TestDropFails(t *testing.T) {
	t.Parallel()
	s, span, emails := closed(t)
	d, trace := dbtest.PostgresTracedAt(t, s.url)
	failing := partitions.New(d, "day", nil)
	failed := trace.EachBroken(t, nil, func() error {
		return failing.Drop(t.Context(), partitions.Emails, span, keep(emails[0]))
	}, func(err error) {
		want := [2]int{20, 20}
		if err == nil {
			want = [2]int{1, 1}
		}
		if s.remaining() != want || err != nil && s.where(emails[0]) == "default" {
			t.Errorf("after %v, %v remain", err, s.remaining())
		}
	})
	if failed < 20 {
		t.Errorf("only %d statements failed", failed)
	}
}

// A drop is cut by the end of its server process, as by kill -9. Update runs it again, as the next call would.
func TestDropIsCut(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"IN SHARE ROW EXCLUSIVE", "TABLE email_events DETACH"} {
		s, span, emails := closed(t)
		d, trace := dbtest.PostgresTracedAt(t, s.url)
		cut := false
		trace.Before(text, func() {
			s.exec(`SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted
				AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
			eventually(t, "the process ends", func() bool {
				var n int
				err := s.QueryRow(t.Context(), `SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' AND database =
					(SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&n)
				return err == nil && n == 0
			})
			if cut = s.remaining() == [2]int{20, 20} && s.where(emails[0]) != "default"; !cut {
				t.Errorf("cut before %s, %v remain", text, s.remaining())
			}
		})
		err := partitions.New(d, "day", nil).Drop(t.Context(), partitions.Emails, span, keep(emails[0]))
		if !cut {
			t.Errorf("nothing was cut before %s", text)
		}
		if err != nil {
			err = s.drop(span, keep(emails[0]))
		}
		if err != nil || s.remaining() != [2]int{1, 1} {
			t.Errorf("cut before %s, then %v, %v remain", text, err, s.remaining())
		}
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 10 s", what)
		}
	}
}

// A drop beside a reader of all emails fails within a short time, in which others wait, and succeeds after the reader
// has ended. New emails are inserted meanwhile.
func TestDropBesideReader(t *testing.T) {
	t.Parallel()
	s, span, _ := closed(t)
	end := s.readAll()
	for range 3 {
		if err := s.drop(span, keep()); !db.IsLockTimeout(err) {
			t.Errorf("beside a reader: %v", err)
		}
		s.email(at(span.To))
	}
	if s.remaining() != [2]int{23, 23} {
		t.Errorf("%v remain", s.remaining())
	}
	end()
	if err := s.drop(span, keep()); err != nil || s.remaining() != [2]int{3, 3} {
		t.Errorf("after the reader: %v, %v remain", err, s.remaining())
	}
}
