package partitions_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/partitions"
)

// fullDisk makes one statement of a transaction fail as on a full disk: the n-th statement that changes the schema, or
// that moves a row out of or into a default partition. It returns a function that sets n, where 0 means that none
// fails, and a function that removes all of this, because the next test uses the same database.
func (s *store) fullDisk() (failAt func(n int), mend func()) {
	s.Helper()
	s.exec(`CREATE SEQUENCE full_at`)
	s.exec(`CREATE TABLE full_disk (n BIGINT)`)
	s.exec(`INSERT INTO full_disk VALUES (0)`)
	const body = `DECLARE at BIGINT; BEGIN
		SELECT n INTO at FROM full_disk;
		IF at > 0 AND nextval('full_at') = at THEN
			RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100';
		END IF;`
	s.exec(`CREATE FUNCTION full_ddl() RETURNS event_trigger LANGUAGE plpgsql AS $f$ ` + body + ` END $f$`)
	s.exec(`CREATE FUNCTION full_row() RETURNS trigger LANGUAGE plpgsql AS $f$ ` + body +
		` RETURN COALESCE(NEW, OLD); END $f$`)
	for _, t := range partitions.Emails.Tables {
		s.exec(`CREATE TRIGGER full_disk BEFORE INSERT OR DELETE ON ` + t.Name + `_default FOR EACH ROW
			EXECUTE FUNCTION full_row()`)
	}
	s.exec(`CREATE EVENT TRIGGER full_disk ON ddl_command_end WHEN TAG IN ('CREATE TABLE', 'ALTER TABLE')
		EXECUTE FUNCTION full_ddl()`)
	s.exec(`CREATE EVENT TRIGGER full_disk_drop ON ddl_command_start WHEN TAG IN ('DROP TABLE')
		EXECUTE FUNCTION full_ddl()`)
	mend = func() {
		s.exec(`DROP EVENT TRIGGER full_disk`)
		s.exec(`DROP EVENT TRIGGER full_disk_drop`)
		s.exec(`DROP FUNCTION full_ddl, full_row CASCADE`)
		s.exec(`DROP TABLE full_disk`)
		s.exec(`DROP SEQUENCE full_at`)
	}
	return func(n int) {
		s.Helper()
		s.exec(`SELECT setval('full_at', 1, FALSE)`)
		s.exec(`UPDATE full_disk SET n = $1`, n)
	}, mend
}

// fails makes each statement of an operation fail once as on a full disk, one after another. The check function is
// called after each failure. In the end, the operation succeeds.
func (s *store) fails(atLeast int, operation func() error, check func() error) {
	s.Helper()
	failAt, mend := s.fullDisk()
	defer mend()
	n := 1
	for ; n < 100; n++ {
		failAt(n)
		err := operation()
		failAt(0)
		if err == nil {
			break
		}
		if !errors.Is(err, db.ErrUnavailable) {
			s.Fatalf("statement %d on a full disk: %v", n, err)
		}
		if err := check(); err != nil {
			s.Fatalf("after statement %d failed: %v", n, err)
		}
	}
	if n <= atLeast {
		s.Errorf("only %d statements failed", n-1)
	}
}

// A full disk while partitions are made: the default partition takes the rows, and the next run makes the partitions.
func TestMakeOnAFullDisk(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	emails := 0
	s.fails(10, func() error { return s.service("month").Make(t.Context()) }, func() error {
		if emails++; emails > 3 {
			return nil
		}
		s.email(at(s.Now()))
		if left := s.remaining(); left != [2]int{emails, emails} {
			return fmt.Errorf("%v of %d emails are left", left, emails)
		}
		return nil
	})
	s.make("month") // what the successful run did not reach because another partition failed
	for _, table := range partitions.Emails.Tables {
		if n := len(s.spans(table.Name)); n != 2 {
			t.Errorf("%s has %d partitions", table.Name, n)
		}
	}
	if left := s.remaining(); left != [2]int{3, 3} {
		t.Errorf("%v emails are left", left)
	}
}

// A full disk while rows are moved out of the default partition: all stay readable, and the next run moves them.
func TestEmptyOnAFullDisk(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	start := s.Now().Truncate(day).Add(-3 * day)
	var emails []string
	for i := range 3 {
		emails = append(emails, s.email(at(start.Add(time.Duration(i)*time.Hour))))
	}
	s.fails(15, func() error { return s.service("day").Empty(t.Context(), partitions.Emails, start) }, func() error {
		if s.remaining() != [2]int{3, 3} || s.where(emails[0]) != "default" {
			return fmt.Errorf("%v emails are left, the first in %s", s.remaining(), s.where(emails[0]))
		}
		return nil
	})
	for _, x := range emails {
		if name := s.where(x); name != start.Format("20060102") {
			t.Errorf("an email is in %s", name)
		}
	}
}

// A full disk while a partition is dropped: nothing is dropped, and the next run drops it and keeps what must stay.
func TestDropOnAFullDisk(t *testing.T) {
	t.Parallel()
	s, span, emails := closed(t)
	s.fails(10, func() error { return s.drop(span, keep(emails[3], emails[5])) }, func() error {
		if s.remaining() != [2]int{20, 20} || s.where(emails[3]) == "default" {
			return fmt.Errorf("%v emails are left, one that must stay in %s", s.remaining(), s.where(emails[3]))
		}
		return nil
	})
	if s.remaining() != [2]int{2, 2} || s.where(emails[3]) != "default" || s.where(emails[5]) != "default" {
		t.Errorf("%v emails are left", s.remaining())
	}
}
