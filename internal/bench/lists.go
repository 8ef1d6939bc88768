package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// listRequests is the default number of requests of each kind and team.
const listRequests = 500

// lists measures requests for lists and single emails on a store that [measurement.fill] has filled, one request at a
// time. The places in the lists are spread evenly over the time of the fill.
func (b *measurement) lists(ctx context.Context) error {
	n, err := b.start(ctx)
	if err != nil {
		return err
	}
	defer n.stop()
	l := lister{b: b, n: n, random: rand.New(rand.NewPCG(1, 2)), until: time.Now().Add(-fillAge),
		took: map[string][]time.Duration{}}
	teams := b.fillTeams()
	b.say("Postrider %s on %s: requests of %d teams, one at a time, over %d days", b.env.Version, b.engine(), len(teams),
		b.days)
	for i := range cmp.Or(b.requests, listRequests) {
		for _, team := range teams {
			if err := l.ask(ctx, fillKey(team)); err != nil {
				return fmt.Errorf("request %d of team %d, which --fill makes with the same --teams and --days: %w", i, team, err)
			}
		}
	}
	for _, what := range l.order {
		all := l.took[what]
		slices.Sort(all)
		b.say("%-38s p50 %6.2f ms, p99 %6.2f ms, at most %6.2f ms   %d requests", what, ms(all[len(all)/2]),
			ms(all[len(all)*99/100]), ms(all[len(all)-1]), len(all))
	}
	return nil
}

// lister measures the requests of the benchmark lists.
type lister struct {
	b      *measurement
	n      *measuredNode
	random *rand.Rand
	until  time.Time
	order  []string
	took   map[string][]time.Duration // by what was asked
}

// ask makes one request of each kind for a team.
func (l *lister) ask(ctx context.Context, key string) error {
	if _, err := l.get(ctx, key, "GET /emails, the newest", "/emails?limit=100"); err != nil {
		return err
	}
	place := idAt(l.random, l.until.Add(-time.Duration(l.random.Float64()*float64(l.b.days)*float64(24*time.Hour))))
	ids, err := l.get(ctx, key, "GET /emails after an email", "/emails?limit=100&after="+place)
	if err != nil {
		return err
	}
	if _, err := l.get(ctx, key, "GET /emails before an email", "/emails?limit=100&before="+place); err != nil {
		return err
	}
	if len(ids) > 0 {
		path := "/emails/" + ids[l.random.IntN(len(ids))]
		if _, err := l.get(ctx, key, "GET /emails/{id}", path); err != nil {
			return err
		}
		if _, err := l.get(ctx, key, "GET /emails/{id}/events", path+"/events"); err != nil {
			return err
		}
	}
	if err := l.search(ctx, key, ids); err != nil {
		return err
	}
	logs, err := l.get(ctx, key, "GET /logs after an entry", "/logs?limit=100&after="+place)
	if err == nil && len(logs) > 0 {
		_, err = l.get(ctx, key, "GET /logs/{id}", "/logs/"+logs[l.random.IntN(len(logs))])
	}
	return err
}

// get makes a request, records the time that it took, and returns the ids of the listed items.
func (l *lister) get(ctx context.Context, key, what, path string) (ids []string, err error) {
	began := time.Now()
	text, status, err := l.n.callAs(ctx, key, http.MethodGet, path, "")
	took := time.Since(began)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("GET %s: status %d: %.300s", path, status, text)
	}
	if err != nil {
		return nil, err
	}
	if l.took[what] == nil {
		l.order = append(l.order, what)
	}
	l.took[what] = append(l.took[what], took)
	var list struct{ Data []struct{ ID string } }
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("GET %s: %w", path, err)
	}
	for _, item := range list.Data {
		ids = append(ids, item.ID)
	}
	return ids, nil
}

// search makes a request for each kind of search and filter. The filled emails have numbers in their subjects and
// recipients. The last searches find nothing.
func (l *lister) search(ctx context.Context, key string, ids []string) error {
	number := strconv.Itoa(l.random.IntN(1_000_003))
	all := [][2]string{{"to=ADDRESS", "to=user" + number + "@example.net"}, {"q=NUMBER", "q=" + number},
		{"q=WORD", "q=receipt"}, {"q=DIGIT", "q=" + number[:1]},
		{"subject=WORD+DIGITS", "subject=receipt+" + number[:min(2, len(number))]}, {"status=delivered", "status=delivered"},
		{"tag=NAME:VALUE", "tag=category:receipt"}, {"to=DOMAIN", "to=example.net"},
		{"to=ADDRESS, none", "to=nobody@example.org"}, {"q=WORD, none", "q=zyzzyva"},
		{"status=bounced, none", "status=bounced"}, {"tag=NAME, none", "tag=none"}}
	if len(ids) > 0 {
		all = append(all, [2]string{"q=ID", "q=" + ids[l.random.IntN(len(ids))]},
			[2]string{"q=WORD after an email", "q=receipt&after=" + ids[0]},
			[2]string{"to=DOMAIN before an email", "to=example.net&before=" + ids[0]})
	}
	for _, x := range all {
		if _, err := l.get(ctx, key, "GET /emails?"+x[0], "/emails?limit=100&"+x[1]); err != nil {
			return err
		}
	}
	return nil
}
