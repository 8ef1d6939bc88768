package delivery

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// A host that receives messages but does not answer gets two copies in quick succession and later copies hours apart.
func TestHeldBackWhenNobodyKnows(t *testing.T) {
	t.Parallel()
	const envelope = "S: 220 mx.test\nC: EHLO *\nS: 250 mx.test\nC: MAIL *\nS: 250 ok\nC: RCPT *\nS: 250 ok\nC: " +
		"DATA\nS: 354 go\n(data)\n"
	for _, end := range []string{"(drop)\n", "(endless lines)\n"} {
		t.Run(strings.TrimSpace(end), func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				p := smtptest.Script(t, envelope+end+"(next)\n"+envelope+end+"(next)\n"+envelope+end)
				n := one(p.Addr)
				f := newFixture(t, d, n.config(5), n.dns).run()
				x := f.send(address(1))
				f.wait(x, events.EmailDelayed, events.EmailDelayed)
				f.due(x)
				f.wait(x, events.EmailDelayed, events.EmailDelayed, events.EmailDelayed)
				all := f.attempts(x)
				if len(all) != 3 {
					t.Fatalf("%d attempts", len(all))
				}
				for i, hold := range []time.Duration{0, unknownWaitMin, 2 * unknownWaitMin} {
					a := all[i]
					wait := a.NextAt.Sub(a.StartedAt.Add(a.Duration))
					if a.Outcome != "unknown" || wait < hold || wait > hold+time.Minute {
						t.Errorf("try %d: %s, the next after %v, want %v", i+1, a.Outcome, wait, hold)
					}
					if says := strings.Contains(a.Conversation, "may have delivered a copy"); says != (hold > 0) ||
						len(a.Conversation) > conversationMax {
						t.Errorf("try %d: the conversation has %d bytes: %s", i+1, len(a.Conversation), a.Conversation)
					}
				}
				var ids []string
				for _, body := range p.Bodies() {
					ids = append(ids, messageID([]byte(body)))
				}
				if diff := cmp.Diff([]string{ids[0], ids[0], ids[0]}, ids); diff != "" {
					t.Errorf("the Message-IDs differ: %s", diff)
				}
			})
		})
	}
}

func TestUnknownWait(t *testing.T) {
	t.Parallel()
	var got []time.Duration
	for n := range 8 {
		got = append(got, unknownWait(n))
	}
	if diff := cmp.Diff([]time.Duration{0, 0, unknownWaitMin, 2 * unknownWaitMin, 4 * unknownWaitMin, unknownWaitMax,
		unknownWaitMax, unknownWaitMax},
		got); diff != "" {
		t.Error(diff)
	}
	accepted, now, copies := time.Now(), time.Now(), 1
	for {
		wait, over := nextWait(defaultSchedule, jobs.Job{Tries: copies - 1, CreatedAt: accepted}, now)
		if over {
			break
		}
		now = now.Add(max(wait, unknownWait(copies)))
		copies++
	}
	if copies != 7 {
		t.Errorf("%d copies within %v", copies, now.Sub(accepted))
	}
}
