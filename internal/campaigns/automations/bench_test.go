package automations_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/campaigns/customevents"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// BenchmarkEvents sends events for 2,000 contacts from 64 concurrent clients. Depending on the case, an event begins no
// run, a run that waits, or a run that first sends an email. The reported event rate includes the time until all
// effects of the events are stored.
func BenchmarkEvents(b *testing.B) {
	const contacts, total, clients = 2000, 10_000, 64
	for _, database := range []string{"sqlite", "postgres"} {
		for _, event := range []string{"nothing", "waits", "sends"} {
			b.Run(database+"/"+event, func(b *testing.B) {
				s := benched(b, database)
				s.automation(trigger("waits"), step("day", engine.Delay, `{"duration": "1 day"}`))
				s.automation(trigger("sends"), sends("mail"), step("day", engine.Delay, `{"duration": "1 day"}`))
				ids := s.crowd(contacts)
				stop := s.Run(s.a.Kinds()...)
				defer stop()
				began := time.Now()
				for b.Loop() {
					var wg sync.WaitGroup
					for c := range clients {
						wg.Go(func() {
							for n := c; n < total; n += clients {
								if err := s.event(b.Context(), event, ids[n%contacts]); err != nil {
									b.Error(err)
									return
								}
							}
						})
					}
					wg.Wait()
					b.ReportMetric(total/time.Since(began).Seconds(), "accepted/s")
					if event != "nothing" {
						s.allWait(total)
					}
				}
				b.ReportMetric(total/time.Since(began).Seconds(), "events/s")
			})
		}
	}
}

// BenchmarkWaiting measures the memory and the CPU time that a node uses while 100,000 runs are waiting in a delay
// step.
func BenchmarkWaiting(b *testing.B) {
	const total = 100_000
	for _, database := range []string{"sqlite", "postgres"} {
		b.Run(database, func(b *testing.B) {
			s := benched(b, database)
			s.automation(trigger("go"), step("day", engine.Delay, `{"duration": "1 day"}`))
			ids := s.crowd(total)
			stop := s.Run(s.a.Kinds()...)
			defer stop()
			before := memory()
			var wg sync.WaitGroup
			for c := range 64 {
				wg.Go(func() {
					for n := c; n < total; n += 64 {
						if err := s.event(b.Context(), "go", ids[n]); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			s.allWait(total)
			for b.Loop() {
				used := cpu()
				time.Sleep(10 * time.Second)
				b.ReportMetric((cpu()-used).Seconds()*100, "ms_CPU/s")
				b.ReportMetric((memory()-before)/1e6, "MB")
			}
		})
	}
}

func benched(b *testing.B, database string) *fixture {
	b.Helper()
	open := dbtest.SQLite
	if database == "postgres" {
		open = dbtest.Postgres
	}
	return newFixture(b, testnode.New(b, open(b), testnode.Options{}))
}

// allWait blocks until n runs are waiting. The polling interval is 200 ms, because each poll reads all runs.
func (s *fixture) allWait(n int) {
	s.T.Helper()
	for s.Count(`SELECT COUNT(*) FROM automation_runs WHERE waits_until > 0`) < n {
		time.Sleep(200 * time.Millisecond)
	}
}

func (s *fixture) event(ctx context.Context, name, contactID string) error {
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		return s.a.OnEvent(ctx, tx, customevents.Occurrence{TeamID: s.Acme.TeamID, Name: name, ContactID: contactID,
			Payload: `{"plan":"pro","sum":5}`, At: tx.Now()})
	})
}

// crowd inserts the rows of n contacts and returns their ids.
func (s *fixture) crowd(n int) (ids []string) {
	s.T.Helper()
	for len(ids) < n {
		s.Update(func(tx *db.Tx) error {
			for range 1000 {
				ids = append(ids, id.At(tx.Now()))
				tx.Queue(s.T.Context(), `INSERT INTO contacts (id, team_id, address, first_name, last_name, unsubscribed,
					source_id, created_at, updated_at) VALUES ($1, $2, $3, '', '', FALSE, NULL, $4, $4)`, db.ID(ids[len(ids)-1]),
					db.ID(s.Acme.TeamID), fmt.Sprintf("c%d@reader.example", len(ids)), tx.Now().UnixMicro())
			}
			return nil
		})
	}
	return ids
}

// memory returns the heap size in bytes.
func memory() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
