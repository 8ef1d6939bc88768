package partitions_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/partitions"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const day = 24 * time.Hour

// store is a database whose tables of emails have only their default partitions.
type store struct {
	*testing.T
	*db.DB
	url string
}

func newStore(t *testing.T) *store {
	t.Helper()
	url := dbtest.PostgresURL(t)
	s := &store{t, dbtest.Open(t, url), url}
	dbtest.DropPartitions(t, s.DB)
	s.exec(`UPDATE migrations SET applied_at = $1`, s.Now().Add(-50*day).UnixMicro())
	return s
}

func (s *store) service(l partitions.Length) *partitions.Service {
	return partitions.New(s.DB, l, slog.New(slog.DiscardHandler))
}

func (s *store) exec(text string, args ...any) {
	s.Helper()
	err := s.Update(s.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(s.Context(), text, args...)
		return err
	})
	if err != nil {
		s.Fatalf("%s: %v", text, err)
	}
}

func (s *store) list() []partitions.Partition {
	s.Helper()
	all, err := s.service("day").List(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	return all
}

// spans returns the ranges of a table's partitions, in order.
func (s *store) spans(table string) (all []string) {
	for _, p := range s.list() {
		if p.Table == table && !p.Default {
			all = append(all, p.Span.String())
		}
	}
	return all
}

func (s *store) make(l partitions.Length) {
	s.Helper()
	if err := s.service(l).Make(s.Context()); err != nil {
		s.Fatal(err)
	}
}

func (s *store) empty(l partitions.Length, since time.Time) {
	s.Helper()
	if err := s.service(l).Empty(s.Context(), partitions.Emails, since); err != nil {
		s.Fatal(err)
	}
}

// email inserts an email with a row in each of the tables.
func (s *store) email(emailID string) string {
	s.Helper()
	// Literals fit columns of any type.
	s.exec(strings.ReplaceAll(`INSERT INTO emails (created_at, scheduled_at, id, team_id, actor_id, domain_id,
		message_id, sender, subject, recipients, tags, topic_id, template_id, broadcast_id, rank, last_event, actor_kind)
		VALUES (0, NULL, $1, $1, $1, $1, '', '', '', '', '', $1, $1, $1, 1, 2, 1)`, "$1", "'"+emailID+"'"))
	s.exec(strings.ReplaceAll(`INSERT INTO email_events (created_at, email_id, id, team_id, domain_id, broadcast_id,
		type, detail, recipient, data) VALUES (0, $1, $1, $1, $1, $1, 3, '', '', '')`, "$1", "'"+emailID+"'"))
	return emailID
}

// readAll begins a transaction that has read all emails, and returns a function that ends it.
func (s *store) readAll() (end func()) {
	started, ended := make(chan bool), make(chan bool)
	var wg sync.WaitGroup
	wg.Go(func() {
		err := s.Update(context.Background(), func(tx *db.Tx) error {
			var n int
			err := tx.QueryRow(context.Background(), `SELECT COUNT(*) FROM emails`).Scan(&n)
			close(started)
			<-ended
			return err
		})
		if err != nil {
			s.Error(err)
		}
	})
	<-started
	return func() {
		close(ended)
		wg.Wait()
	}
}

// where returns the partition that has an email, without the name of the table.
func (s *store) where(emailID string) string {
	s.Helper()
	var name, event string
	err := s.QueryRow(s.Context(), `SELECT CAST(CAST(e.tableoid AS REGCLASS) AS TEXT),
		CAST(CAST(v.tableoid AS REGCLASS) AS TEXT) FROM emails e JOIN email_events v ON v.email_id = e.id
		WHERE e.id = $1`, emailID).Scan(&name, &event)
	if err != nil {
		s.Fatalf("email %s: %v", emailID, err)
	}
	if name = strings.TrimPrefix(name, "emails_"); name != strings.TrimPrefix(event, "email_events_") {
		s.Errorf("the email is in %s, its event in %s", name, event)
	}
	return name
}

// at returns an id of a time.
func at(t time.Time) string {
	first := id.First(t)
	return first[:24] + uuid.NewString()[24:]
}

// Partitions are made ahead, in UTC: a week of days, or the current and the next week or month. A change of the length
// does not overlap with what exists.
func TestMake(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	today := s.Now().Truncate(day)
	s.make("day")
	s.make("day")
	var want []string
	for i := range 8 {
		want = append(want, partitions.Span{From: today.Add(time.Duration(i) * day),
			To: today.Add(time.Duration(i+1) * day)}.String())
	}
	for _, table := range partitions.Emails.Tables {
		if diff := cmp.Diff(want, s.spans(table.Name)); diff != "" {
			t.Errorf("%s: %s", table.Name, diff)
		}
	}
	s.make("month")
	all := s.spans("emails")
	end := today.AddDate(0, 0, 1-today.Day()).AddDate(0, 2, 0)
	if last := all[len(all)-1]; !strings.HasSuffix(last, end.Format(" to "+time.RFC3339)) {
		t.Errorf("the last partition is %s", last)
	}
	for _, p := range s.list() {
		for _, o := range s.list() {
			if p.Table == o.Table && p.Name != o.Name && !p.Default && !o.Default && p.From.Before(o.To) && o.From.Before(p.To) {
				t.Errorf("%s and %s overlap", p.Span, o.Span)
			}
		}
	}
	if name := s.where(s.email(id.New())); name != today.Format("20060102") {
		t.Errorf("an email of now is in %s", name)
	}
	s = newStore(t)
	s.make("week")
	monday := today.AddDate(0, 0, -(int(today.Weekday())+6)%7)
	want = nil
	for i := range 3 {
		if i > 0 { // the current week begins on Monday
			want = append(want, partitions.Span{From: monday.AddDate(0, 0, 7*(i-1)), To: monday.AddDate(0, 0, 7*i)}.String())
		}
	}
	if diff := cmp.Diff(want, s.spans("emails")); diff != "" {
		t.Error(diff)
	}
}

// MakeSince also makes the partitions of the past, except for those that exist.
func TestMakeSince(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	today := s.Now().Truncate(day)
	s.make("day")
	for range 2 {
		if err := s.service("day").MakeSince(t.Context(), today.Add(-5*day+time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	var want []string
	for i := -5; i < 8; i++ {
		from := today.Add(time.Duration(i) * day)
		want = append(want, partitions.Span{From: from, To: from.Add(day)}.String())
	}
	if diff := cmp.Diff(want, s.spans("email_messages")); diff != "" {
		t.Error(diff)
	}
	if name := s.where(s.email(at(today.Add(-4 * day)))); name != today.Add(-4*day).Format("20060102") {
		t.Errorf("an email of four days ago is in %s", name)
	}
}

// Nodes that start at the same time make each partition once.
func TestMakeOnTwoNodes(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	var wg sync.WaitGroup
	for range 4 {
		other := dbtest.Open(t, s.url)
		wg.Go(func() {
			if err := partitions.New(other, "day", slog.New(slog.DiscardHandler)).Make(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := len(s.spans("email_events")); n != 8 {
		t.Errorf("there are %d partitions", n)
	}
}

// If a partition cannot be made, the others are, the default partition takes its rows, and they are moved once it can
// be made. That moves strange ids nowhere.
func TestDefaultPartition(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	now := s.Now()
	today, since := now.Truncate(day), now.Add(-40*day)
	s.exec(`CREATE TABLE email_events` + today.Format("_20060102") + ` (id BIGINT)`)
	tomorrow := today.Add(day)
	s.exec(`CREATE TABLE emails` + tomorrow.Format("_20060102") + ` (id BIGINT)`)
	err := s.service("day").Make(t.Context())
	if err == nil || !strings.Contains(err.Error(), "already exists") ||
		!strings.Contains(err.Error(), "default partition") {
		t.Errorf("conflicting tables: %v", err)
	}
	if n := len(s.spans("emails")); n != 6 {
		t.Errorf("%d others were made", n)
	}
	strange := map[string]string{"1970": s.email(at(time.Unix(3600, 0))), "version 4": s.email(uuid.NewString()),
		"the future": s.email(at(now.Add(300 * day)))}
	var yesterday, ofNow []string
	for i := range 50 {
		yesterday = append(yesterday, s.email(at(today.Add(-time.Duration(i+1)*10*time.Minute))))
		ofNow = append(ofNow, s.email(id.At(s.Now())))
	}
	jumped := s.email(at(tomorrow.Add(time.Hour))) // the clock went ahead, and back again
	for _, x := range []string{yesterday[0], ofNow[0], jumped} {
		if name := s.where(x); name != "default" {
			t.Errorf("%s is in %s", x, name)
		}
	}
	s.exec(`DROP TABLE email_events` + today.Format("_20060102"))
	s.exec(`DROP TABLE emails` + tomorrow.Format("_20060102"))
	s.make("day")
	s.empty("day", since)
	for _, x := range yesterday {
		if name := s.where(x); name != today.Add(-day).Format("20060102") {
			t.Errorf("%s of yesterday is in %s", x, name)
		}
	}
	if name := s.where(jumped); name != tomorrow.Format("20060102") {
		t.Errorf("%s of tomorrow is in %s", jumped, name)
	}
	for _, x := range ofNow { // rows of now stay where they are until they are old enough
		if name := s.where(x); name != "default" && now.Truncate(day).Equal(s.Now().Truncate(day)) {
			t.Errorf("%s of now is in %s", x, name)
		}
	}
	for what, x := range strange {
		if name := s.where(x); name != "default" {
			t.Errorf("the email of %s is in %s", what, name)
		}
		s.exec(`DELETE FROM email_events WHERE email_id = $1`, x)
		s.exec(`DELETE FROM emails WHERE id = $1`, x)
	}
}

// Partitions are made although another transaction uses the table. If it has the default partition locked, that fails
// and is tried again.
func TestMakeBesideReaders(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	end := s.readAll()
	if err := s.service("month").Make(t.Context()); !db.IsLockTimeout(err) || !errors.Is(err, db.ErrUnavailable) {
		t.Errorf("beside a reader of all partitions: %v", err)
	}
	end()
	s.make("month")
	if n := len(s.spans("emails")); n != 2 {
		t.Errorf("there are %d partitions", n)
	}
}

// More rows than one transaction may move are split by time.
func TestEmptyInBatches(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	start := s.Now().Truncate(day).Add(-3 * day)
	const rows = 25_000
	s.email(at(s.Now().Add(300 * day))) // a row to copy, which stays in the default partition
	s.exec(fmt.Sprintf(`INSERT INTO email_events SELECT (JSONB_POPULATE_RECORD(v, JSONB_BUILD_OBJECT('email_id', x.id,
		'id', x.id))).* FROM email_events v, (SELECT CAST(LPAD(TO_HEX((%d + g) >> 16), 8, '0')
		|| LPAD(TO_HEX((%[1]d + g) & 65535), 4, '0') || '70008000000000000000' AS UUID) AS id
		FROM GENERATE_SERIES(0, %d) g) x`, start.UnixMilli(), rows-1))
	few := s.service("day")
	few.MoveAtMost(10_000)
	if err := few.Empty(t.Context(), partitions.Emails, start.Add(-day)); err != nil {
		t.Fatal(err)
	}
	var left, all int
	if err := s.QueryRow(t.Context(), `SELECT (SELECT COUNT(*) FROM email_events_default),
		(SELECT COUNT(*) FROM email_events)`).Scan(&left, &all); err != nil || left != 1 || all != rows+1 {
		t.Errorf("%d of %d rows are left, %v", left, all, err)
	}
	if n := len(s.spans("email_events")); n != 3 {
		t.Errorf("there are %d partitions", n)
	}
}

// A node whose user has rights for a table, but not for a partition that another user made later, does not name the
// partition in statements.
func TestPartitionWithoutRights(t *testing.T) {
	t.Parallel()
	user := dbtest.NewRole(t)
	s := newStore(t)
	s.make("day")
	s.exec(`GRANT SELECT, INSERT, UPDATE, DELETE ON emails TO ` + user)
	u, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(user)
	d, err := db.Open(t.Context(), db.Options{URL: u.String()})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	named := func() string {
		if err := partitions.New(d, "day", slog.New(slog.DiscardHandler)).Learn(t.Context()); err != nil {
			t.Fatal(err)
		}
		name := d.PartitionOf("emails", db.ID(at(s.Now())))
		var n int
		if err := d.QueryRow(t.Context(), `SELECT COUNT(*) FROM `+name).Scan(&n); err != nil {
			t.Errorf("the user cannot use %s: %v", name, err)
		}
		return name
	}
	if name := named(); name != "emails" {
		t.Errorf("without rights, statements name %s", name)
	}
	today := s.Now().UTC().Format("emails_20060102")
	s.exec(`GRANT SELECT, UPDATE ON ` + today + ` TO ` + user)
	if name := named(); name != today {
		t.Errorf("with rights, statements name %s", name)
	}
}

// If somebody drops the partition of one table only, Make and Ahead report it. After the partitions of the other tables
// were dropped, Make makes all of them again.
func TestOneTableWithoutItsPartition(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.make("day")
	next := partitions.Span{From: s.Now().Truncate(day).Add(2 * day), To: s.Now().Truncate(day).Add(3 * day)}
	suffix := next.From.Format("_20060102")
	s.exec(`DROP TABLE emails` + suffix)
	if err := s.service("day").Make(s.Context()); err == nil || !strings.Contains(err.Error(), next.String()) {
		t.Errorf("Make returns %v, although emails has no partition of %s", err, next)
	}
	got, err := s.service("day").Ahead(s.Context(), partitions.Emails)
	if diff := cmp.Diff([]partitions.Span{next}, got); diff != "" || err != nil {
		t.Errorf("Ahead returns an error %v, %s", err, diff)
	}
	for _, table := range partitions.Emails.Tables[1:] {
		s.exec(`DROP TABLE ` + table.Name + suffix)
	}
	s.make("day")
	if got, err := s.service("day").Ahead(s.Context(), partitions.Emails); err != nil || len(got) > 0 {
		t.Errorf("after that, Ahead returns %v, %v", got, err)
	}
}
