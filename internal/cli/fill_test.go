package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/platform/db"
)

// readFilled returns the ids of a list, newest first.
func readFilled(n *started, key, path string) (ids []string) {
	n.t.Helper()
	for after := ""; ; after = "&after=" + ids[len(ids)-1] {
		status, text := n.ask(key, http.MethodGet, path+"limit=100"+after, "")
		var list struct {
			More bool `json:"has_more"`
			Data []struct{ ID string }
		}
		if err := json.Unmarshal([]byte(text), &list); err != nil || status != 200 {
			n.t.Fatalf("GET %s: %d %s", path, status, text)
		}
		for _, item := range list.Data {
			if len(ids) > 0 && item.ID >= ids[len(ids)-1] {
				n.t.Fatalf("%s: %s follows %s", path, item.ID, ids[len(ids)-1])
			}
			ids = append(ids, item.ID)
		}
		if !list.More {
			return ids
		}
	}
}

// The emails of a filled store have the same rows as the emails that the node itself sends, except for ids and times.
// They are in lists and in metrics, where each event counts once. A store can be filled again.
func TestFill(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		p.vars["POSTRIDER_SECRET_KEY"], p.vars["POSTRIDER_PARTITION_BY"] = strings.Repeat("ab", 32), "day"
		fill := func(emails, days string) {
			out := p.must("bench", "--fill", emails, "--days", days, "--teams", "4", "--bytes", "300", "--data-dir", p.dir)
			if !regexp.MustCompile(`filled +[1-9]\d* /s .* KB an email`).MatchString(out) {
				t.Errorf("it printed %s", out)
			}
		}
		fill("1500", "3")
		fill("500", "2")
		for range 2 { // contacts that exist are left as they are
			p.must("bench", "--contacts", "300", "--teams", "4", "--data-dir", p.dir)
		}
		n := p.start()
		sizes := map[string]int{}
		var emails, logs []string
		for i, key := range []string{"re_bench_0123456789", "re_bench_0123456789_00001", "re_bench_0123456789_00002",
			"re_bench_0123456789_00003"} {
			all := readFilled(n, key, "/emails?")
			sizes["emails"] += len(all)
			entries := readFilled(n, key, "/logs?method=POST&")
			sizes["logs"] += len(entries)
			sizes["contacts"] += len(readFilled(n, key, "/contacts?"))
			if i == 0 {
				emails, logs = all, entries
			}
		}
		const models = 8 // one for each team and fill
		if want := map[string]int{"emails": 2000 + models, "logs": 2000 + models, "contacts": 300}; !cmp.Equal(sizes, want) {
			t.Errorf("all lists have %v, want %v", sizes, want)
		}
		if len(emails) < 800 || len(emails) > 1120 { // 12 of 25
			t.Errorf("the first team has %d emails", len(emails))
		}
		model, copied := emails[0], emails[len(emails)/2]
		for _, path := range []string{"/emails/%s", "/emails/%s/events", "/emails/%s/attempts"} {
			if diff := cmp.Diff(n.plain(path, model), n.plain(path, copied)); diff != "" {
				t.Errorf(path+" differs from that of a model: %s", "{id}", diff)
			}
		}
		if diff := cmp.Diff(n.plain("/logs/%s", logs[0]), n.plain("/logs/%s", logs[len(logs)/2])); diff != "" ||
			!strings.Contains(n.plain("/logs/%s", logs[7]), "this is a paragraph") {
			t.Errorf("a logged request differs from that of a model: %s", diff)
		}
		checkColumns(n, emails[:2], copied)
		totals := n.plain("/emails/metrics?dimensions=domain%s", "")
		(&driver{started: n}).cron("cron.metrics")
		if again := n.plain("/emails/metrics?dimensions=domain%s", ""); again != totals ||
			!strings.Contains(totals, fmt.Sprintf(`"delivered":%d`, len(emails))) {
			t.Errorf("%d emails were counted as %s\nand then as %s", len(emails), totals, again)
		}
		if left := n.count(`SELECT COUNT(*) FROM ` + map[bool]string{true: `sqlite_schema WHERE name`,
			false: `pg_class WHERE relname`}[n.DB.Alone()] + ` LIKE 'bench%'`); left > 0 {
			t.Errorf("%d tables of the fill are left", left)
		}
		if !n.DB.Alone() && n.count(`SELECT COUNT(*) FROM emails_default`) > 0 {
			t.Error("emails are in the default partition")
		}
	})
}

// plain returns a response without ids, times, durations and SMTP conversations.
func (n *started) plain(path, id string) string {
	n.t.Helper()
	status, text := n.ask("re_bench_0123456789", http.MethodGet, fmt.Sprintf(path, id), "")
	if status != 200 {
		n.t.Fatalf("GET %s of %s: %d %s", path, id, status, text)
	}
	return regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7[-0-9a-f]{21}|\d{4}-\d\d-\d\d[T ][0-9:.+Z]+|`+
		`"(duration[a-z_]*":[0-9.]+|conversation":"[^"]*")`).
		ReplaceAllString(likeModel(text), "…")
}

var copiedNumbers = regexp.MustCompile(`user\d*@example\.net|Receipt no\. \d+`)

// likeModel replaces what differs between copies, so that searches find few of them: the recipient and the subject.
func likeModel(text string) string {
	return copiedNumbers.ReplaceAllStringFunc(text, func(found string) string {
		return regexp.MustCompile(`\d+`).ReplaceAllString(found, "")
	})
}

// checkColumns compares columns of an email and its events with those of the models, of which one is that of the email.
func checkColumns(n *started, models []string, copied string) {
	n.t.Helper()
	read := func(emailID string) (all []string) {
		n.t.Helper()
		rows, err := n.DB.Query(n.t.Context(), `SELECT e.last_event, e.recipient, e.tags, e.rank,
			COALESCE(e.updated_at, 0) - e.created_at, v.type, v.created_at - e.created_at,
			CASE WHEN v.started_at IS NULL THEN 0 ELSE v.created_at - v.started_at + 1 END, COALESCE(v.outcome, 0)
			FROM emails e JOIN email_events v ON v.email_id = e.id WHERE e.id = $1 AND e.team_id = v.team_id
			AND e.domain_id = v.domain_id ORDER BY v.id`, db.ID(emailID))
		all, err = db.Collect(rows, err, func(r db.Row) (string, error) {
			var recipient, tags string
			var last, kind, outcome, rank, updated, after, took int64
			err := r.Scan(&last, &recipient, &tags, &rank, &updated, &kind, &after, &took, &outcome)
			return fmt.Sprint(last, likeModel(recipient), tags, rank, updated, kind, after, took, outcome), err
		})
		if err != nil || len(all) != 2 {
			n.t.Fatalf("%d events of %s, %v", len(all), emailID, err)
		}
		return all
	}
	if other := read(copied); !slices.ContainsFunc(models, func(m string) bool { return slices.Equal(read(m), other) }) {
		n.t.Errorf("the rows of a copy are %q, and those of its model %q", other, read(models[0]))
	}
}
