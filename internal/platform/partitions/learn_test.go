package partitions_test

import (
	"context"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/partitions"
)

// A node learns at once which partitions there are, after it met one that another node had dropped, and when it has rows
// that are newer than all partitions that it knows.
func TestLearnsAgain(t *testing.T) {
	t.Parallel()
	s, span, emails := closed(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.service("day").Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	named := func(emailID string) string { return s.PartitionOf("emails", db.ID(emailID)) }
	old, today := "emails_"+span.From.Format("20060102"), s.Now().UTC().Format("emails_20060102")
	eventually(t, "the partition is named", func() bool { return named(emails[0]) == old })
	now := at(s.Now())
	if got := named(now); got != "emails" {
		t.Errorf("without a partition of today, statements name %s", got)
	}
	s.make("day")
	eventually(t, "the new partition is named", func() bool { return named(now) == today })
	if err := s.drop(span, keep()); err != nil {
		t.Fatal(err)
	}
	var n int
	if err := s.QueryRow(ctx, `SELECT COUNT(*) FROM `+old).Scan(&n); !s.ForgetPartitions(err) {
		t.Errorf("the dropped partition has %d rows, %v", n, err)
	}
	eventually(t, "the partition of today is named again", func() bool { return named(now) == today })
	if got := named(emails[0]); got != "emails" {
		t.Errorf("statements name %s, which was dropped", got)
	}
}

// If the partitions are asked for again and again, but are the same each time, they are read more and more seldom.
func TestLearnsSeldomWithoutChanges(t *testing.T) {
	t.Parallel()
	pause, total := time.Duration(0), time.Duration(0)
	for range 20 {
		pause = partitions.NextPause(pause, true)
		total += pause
	}
	if pause != 10*time.Minute || total < time.Hour {
		t.Errorf("20 times take %s, and the last pause is %s", total, pause)
	}
	if pause = partitions.NextPause(pause, false); pause <= 0 || pause > 2*time.Second {
		t.Errorf("after a change, the pause is %s", pause)
	}
}
