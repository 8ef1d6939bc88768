package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"slices"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/mail/dkim"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/domains"
)

const (
	fillBatch = 2000            // number of emails that one transaction inserts
	fillAge   = 5 * time.Minute // minimum age of the emails, so that all of their events can be counted
)

// filled is a team of a filled store.
type filled struct {
	teamID, domainID, key string
	model                 string       // an email that was sent by the node; all others are copies of it
	log                   string       // the model's entry in the request log
	events                []modelEvent // the model's events
	share                 float64      // of the emails, added to the shares of the teams before
}

// fillKey returns the API key of a team of a filled store. The first team is that of the measured node.
func fillKey(i int) string {
	if i == 0 {
		return apiKey
	}
	return fmt.Sprintf("%s_%05d", apiKey, i)
}

// fillAll fills the store with emails and contacts, as the flags say.
func (b *measurement) fillAll(ctx context.Context, c config.Config) error {
	if b.fills > 0 {
		if err := b.fill(ctx, c); err != nil {
			return err
		}
	}
	if b.contacts > 0 {
		return b.fillContacts(ctx, c)
	}
	return nil
}

// fill makes a store with very many delivered emails. Each team sends one email through a node in this process. The
// other emails are copies of the rows of these emails, with ids and times of the past. The n-th team has a share of the
// emails that is proportional to 1/n.
func (b *measurement) fill(ctx context.Context, c config.Config) error {
	n, err := b.openHere(ctx, c)
	if err != nil {
		return err
	}
	defer n.Close()
	f := filler{b: b, n: n, until: n.DB.Now().Add(-fillAge).Truncate(time.Minute)}
	f.since = f.until.AddDate(0, 0, -b.days)
	b.say("Postrider %s on %s: %d emails of %d bytes over %d days and %d teams", b.env.Version, b.engine(), b.fills,
		b.bytes, b.days, b.teams)
	began := time.Now()
	if err := f.prepare(ctx); err != nil {
		return err
	}
	b.say("teams and their models      %8.1f s", time.Since(began).Seconds())
	began = time.Now()
	if err := f.run(ctx); err != nil {
		return err
	}
	took := time.Since(began)
	began = time.Now()
	for i := range f.teams {
		if err := n.Emails.Index.Rebuild(ctx, f.teams[i].teamID); err != nil {
			return fmt.Errorf("make the search index: %w", err)
		}
	}
	b.say("search index                %8.0f /s", float64(b.fills)/time.Since(began).Seconds())
	if err := analyze(ctx, n.DB, "emails", "email_events", "request_logs", "email_counts"); err != nil {
		return fmt.Errorf("gather statistics of the filled tables: %w", err)
	}
	sizes, err := n.DB.Sizes(ctx)
	if err != nil {
		return fmt.Errorf("read the sizes of the tables: %w", err)
	}
	var all int64
	for _, size := range sizes {
		all += size
	}
	b.say("filled                      %8.0f /s   %.1f GB, %.2f KB an email", float64(b.fills)/took.Seconds(),
		float64(all)/(1<<30), float64(all)/1024/float64(b.fills))
	return nil
}

// openHere opens a node on the store in this process. It delivers to the sink, without signatures.
func (b *measurement) openHere(ctx context.Context, c config.Config) (*node.Node, error) {
	c.DataDir, c.BlobURL, c.SecretKey = b.data(), b.blobs(), config.Secret(b.secret)
	c.Roles, c.RateLimit = []string{"api", "delivery", "jobs"}, 0
	c.Transport, c.RelayAddr, c.RelayTLS = "relay", b.sink.Addr(), "none"
	n, err := node.Open(ctx, c, slog.New(slog.DiscardHandler), node.Options{Version: b.env.Version, Unsigned: true})
	if err != nil {
		return nil, err
	}
	key, err := dkim.GenerateRSA() // one key for all domains, because each takes a tenth of a second
	if err != nil {
		n.Close()
		return nil, err
	}
	n.Domains.GenerateRSA = func() (*dkim.Key, error) { return key, nil }
	return n, nil
}

// filler fills a store.
type filler struct {
	b            *measurement
	n            *node.Node
	since, until time.Time
	teams        []filled
	copiers      map[string]copier // by table
}

// makeTeams makes the teams, or finds them in a store that was filled before.
func (f *filler) makeTeams(ctx context.Context) error {
	var sum float64
	for i := range f.b.teams {
		team, err := f.team(ctx, i)
		if err != nil {
			return fmt.Errorf("make team %d: %w", i, err)
		}
		sum += 1 / float64(i+1)
		team.share = sum
		f.teams = append(f.teams, team)
	}
	for i := range f.teams {
		f.teams[i].share /= sum
	}
	return nil
}

// pick returns a team at random, by the teams' shares.
func (f *filler) pick(random *rand.Rand) *filled {
	share := random.Float64()
	return &f.teams[sort.Search(len(f.teams)-1, func(k int) bool { return f.teams[k].share > share })]
}

// prepare makes the teams, their models, and the partitions.
func (f *filler) prepare(ctx context.Context) error {
	if err := f.makeTeams(ctx); err != nil {
		return err
	}
	if err := f.sendModels(ctx); err != nil {
		return fmt.Errorf("send the models: %w", err)
	}
	if err := f.readModels(ctx); err != nil {
		return fmt.Errorf("read the models: %w", err)
	}
	if err := f.n.Partitions().MakeSince(ctx, f.since); err != nil {
		return err
	}
	// Events that an earlier run has recorded are counted first, because their time is before the new time.
	if err := f.n.Metrics.RollUp(ctx); err != nil {
		return err
	}
	return f.n.DB.Update(ctx, func(tx *db.Tx) error {
		for i := range f.teams {
			countedUntil(ctx, tx, f.teams[i].teamID, f.until)
		}
		return nil
	})
}

// team makes a team with a key and a domain, or finds it in a store that was filled before.
func (f *filler) team(ctx context.Context, i int) (t filled, err error) {
	t.key = fillKey(i)
	name, domain := "Fill "+strconv.Itoa(i), fmt.Sprintf("fill-%05d.example", i)
	if i == 0 {
		name, domain = "Development", "bench.example" // as in the measured node
	}
	if err := f.n.Teams.EnsureKey(ctx, name, "development", t.key); err != nil {
		return t, err
	}
	who, err := f.n.Teams.Authenticate(ctx, t.key)
	if err != nil {
		return t, err
	}
	d, err := f.n.Domains.AddVerified(ctx, who.TeamID, domains.NewDomain{Name: domain})
	t.teamID, t.domainID = who.TeamID, d.ID
	return t, err
}

// sendModels runs the node until it has delivered an email for each team.
func (f *filler) sendModels(ctx context.Context) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	run, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- f.n.Run(run, l) }()
	err = f.sendTo(ctx, "http://"+l.Addr().String())
	stop() // the node writes the request log before it ends
	return errors.Join(err, <-ended)
}

func (f *filler) sendTo(ctx context.Context, url string) error {
	var all []string
	for i := range f.teams {
		domain := "bench.example"
		if i > 0 {
			domain = fmt.Sprintf("fill-%05d.example", i)
		}
		body, err := json.Marshal(map[string]any{"from": "Acme <hello@" + domain + ">", "to": "user@example.net",
			"subject": "Receipt no. 1234567", "html": f.b.html(),
			"tags": []map[string]string{{"name": "category", "value": "receipt"}}})
		if err != nil {
			return err
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/emails", bytes.NewReader(body))
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer "+f.teams[i].key)
		r.Header.Set("User-Agent", "bench")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
		answer.Body.Close()
		var made struct{ ID string }
		if err == nil {
			err = json.Unmarshal(text, &made)
		}
		if err != nil || made.ID == "" {
			return fmt.Errorf("the node answered %s: %.300s", answer.Status, text)
		}
		f.teams[i].model = made.ID
		all = append(all, made.ID)
	}
	for {
		events, err := modelEvents(ctx, f.n.DB.Reader, all)
		if err != nil {
			return err
		}
		delivered := 0
		for _, v := range events {
			if v.kind == "delivered" {
				delivered++
			}
		}
		if delivered == len(all) {
			return nil
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// readModels reads what is copied.
func (f *filler) readModels(ctx context.Context) error {
	emailIDs, at := make([]string, len(f.teams)), map[string]int{}
	for i := range f.teams {
		emailIDs[i], at[f.teams[i].model] = f.teams[i].model, i
	}
	events, err := modelEvents(ctx, f.n.DB.Reader, emailIDs)
	if err != nil {
		return err
	}
	keys := map[string][]string{"emails": emailIDs, "email_bodies": emailIDs}
	for _, v := range events {
		team := &f.teams[at[v.emailID]]
		team.events = append(team.events, v)
		keys["email_events"] = append(keys["email_events"], v.id)
	}
	logs, err := modelLogs(ctx, f.n.DB.Reader, emailIDs)
	if err != nil {
		return err
	}
	for i := range f.teams {
		if f.teams[i].log = logs[f.teams[i].model]; f.teams[i].log == "" {
			return fmt.Errorf("the request of the email %s is not in the log", f.teams[i].model)
		}
		keys["request_logs"] = append(keys["request_logs"], f.teams[i].log)
	}
	f.copiers = map[string]copier{}
	for i := range modelTables {
		m := &modelTables[i]
		if m.name == "email_bodies" && !f.n.DB.Alone() {
			continue // a view of emails
		}
		if f.copiers[m.name], err = newCopier(ctx, f.n.DB, m, keys[m.name]); err != nil {
			return err
		}
	}
	return nil
}

// run inserts all emails. Each worker inserts the emails of a whole day in order of time, as a node does.
func (f *filler) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.NumCPU() + 1)
	var mu sync.Mutex // guards done and the output
	done := 0
	for day := range f.b.days {
		first, last := f.b.fills*day/f.b.days, f.b.fills*(day+1)/f.b.days
		g.Go(func() error {
			random := rand.New(rand.NewPCG(uint64(day), 1))
			for from := first; from < last && ctx.Err() == nil; from += fillBatch {
				to := min(from+fillBatch, last)
				if err := f.batch(ctx, random, from, to); err != nil {
					return err
				}
				mu.Lock()
				before := done
				if done += to - from; done*10/f.b.fills > before*10/f.b.fills {
					fmt.Fprintf(f.b.env.ErrOut, "%d emails are filled\n", done)
				}
				mu.Unlock()
			}
			return ctx.Err()
		})
	}
	err := g.Wait()
	return errors.Join(err, f.n.DB.Update(context.WithoutCancel(ctx), func(tx *db.Tx) error {
		for i := range modelTables {
			dropModels(ctx, tx, &modelTables[i])
		}
		return nil
	}))
}

// batch inserts the emails with the given numbers.
func (f *filler) batch(ctx context.Context, random *rand.Rand, first, last int) error {
	var mails, events, logs copies
	counts := map[counter]int64{}
	span := f.until.Sub(f.since)
	for i := first; i < last; i++ {
		at := f.since.Add(time.Duration(float64(i) / float64(f.b.fills) * float64(span))).Truncate(time.Microsecond)
		t := f.pick(random)
		emailID := idAt(random, at)
		mails.add(emailID, t.model, emailID, at)
		logs.add(idAt(random, at), t.log, emailID, at)
		for _, v := range t.events {
			when := at.Add(v.after)
			events.add(idAt(random, when), v.id, emailID, when)
			counts[counter{t.teamID, t.domainID, v.kind, when.UnixMicro() / slotTime.Microseconds()}]++
		}
	}
	err := f.n.DB.Update(ctx, func(tx *db.Tx) error {
		notDurable(ctx, tx)
		f.copiers["emails"].insert(ctx, tx, &mails)
		if c, ok := f.copiers["email_bodies"]; ok {
			c.insert(ctx, tx, &mails)
		}
		f.copiers["email_events"].insert(ctx, tx, &events)
		f.copiers["request_logs"].insert(ctx, tx, &logs)
		count(ctx, tx, counts)
		return nil
	})
	if err != nil {
		return fmt.Errorf("insert the emails from number %d on: %w", first, err)
	}
	return nil
}

// idAt returns an id of a time that may be long ago. Unlike id.At, it does not depend on ids that were made before.
func idAt(random *rand.Rand, at time.Time) string {
	var u uuid.UUID
	binary.BigEndian.PutUint64(u[:8], uint64(at.UnixMilli())<<16|0x7000|uint64(at.UnixMicro()%1000<<12/1000))
	binary.BigEndian.PutUint64(u[8:], random.Uint64()>>2|1<<63)
	return u.String()
}

// fillTeams returns the teams whose lists are measured: the largest one, one in the middle, and the smallest.
func (b *measurement) fillTeams() []int {
	return slices.Compact([]int{0, b.teams / 2, b.teams - 1})
}
