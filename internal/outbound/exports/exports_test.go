package exports

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/outbound/requestlog"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/suppressions"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const mine, others = "0190b5a0-0000-7000-8000-00000000000a", "0190b5a0-0000-7000-8000-00000000000b"

// newService returns a service for a database whose rows the tests insert.
func newService(t *testing.T, d *db.DB) *Service {
	n := testnode.Bare(t, d, testnode.Options{})
	return New(n.Contacts, n.Emails, n.Suppressions, requestlog.New(d, n.Log), n.Audit)
}

// insert inserts n rows for a team, many rows per statement.
func insert(t *testing.T, d *db.DB, text string, from, n int, args func(i int) []any) {
	t.Helper()
	for i := from; i < from+n; {
		err := d.Update(t.Context(), func(tx *db.Tx) error {
			for end := min(i+500, from+n); i < end; i++ {
				tx.Queue(t.Context(), text, args(i)...)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// number returns the id of row number i.
func number(i int) string {
	return fmt.Sprintf("0190b5a0-%04x-7%03x-8000-000000000001", i>>12, i&0xfff)
}

func suppress(t *testing.T, d *db.DB, teamID string, from, n int) {
	t.Helper()
	insert(t, d, `INSERT INTO suppressions (id, team_id, address, origin, source_id, created_at)
		VALUES ($1, $2, $3, $4, NULL, $5)`, from, n, func(i int) []any {
		origin := suppressions.Manual
		if i%1000 == 0 {
			origin = suppressions.Bounce
		}
		return []any{db.ID(strings.Replace(number(i), "8000", "8"+teamID[len(teamID)-3:], 1)), db.ID(teamID),
			fmt.Sprintf("%05d@one.example", i), string(origin), int64(i)}
	})
}

// read reads an export to the end.
func read(t *testing.T, e *Export, o Options) string {
	t.Helper()
	var b strings.Builder
	for batch, err := range e.Batches(t.Context(), o) {
		if err != nil {
			t.Fatal(err)
		}
		b.Write(batch)
	}
	return b.String()
}

// TestExportOfMany checks that the number of queries is proportional to the length of the export, whether its filter
// selects all rows or only a few. TestExportOfMany also checks that only a few rows are in memory at a time.
func TestExportOfMany(t *testing.T) {
	t.Parallel()
	const rows = 20_000
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		s := newService(t, d)
		suppress(t, d, mine, 0, rows)
		suppress(t, d, others, 0, 3)
		for _, c := range []struct {
			origin suppressions.Origin
			lines  int
		}{{"", rows}, {suppressions.Bounce, rows / 1000}, {suppressions.Complaint, 0}} {
			trace.Take()
			lines, most, last := 0, 0, ""
			for batch, err := range s.Suppressions(mine, c.origin).Batches(t.Context(), Options{Format: NDJSON}) {
				if err != nil {
					t.Fatal(err)
				}
				lines += bytes.Count(batch, []byte("\n"))
				for line := range bytes.Lines(batch) {
					var row SuppressionRow
					if err := json.Unmarshal(line, &row); err != nil || last != "" && row.Email >= last {
						t.Fatalf("%s after %s: %v", line, last, err)
					}
					last = row.Email
				}
				most = max(most, bytes.Count(batch, []byte("\n")))
			}
			if queries := len(trace.Take()); lines != c.lines || queries > 2*(rows/2000+1) || most > 2000 {
				t.Errorf("origin %q: %d lines by %d queries, %d lines in one part", c.origin, lines, queries, most)
			}
		}
	})
}

// TestBatchesUseIndexes checks that the queries of every batch use an index. TestStatementsGoByIndexes in package cli
// checks the queries for first batches, also on PostgreSQL.
func TestBatchesUseIndexes(t *testing.T) {
	t.Parallel()
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		s := newService(t, d)
		trace.Take()
		now := time.Now()
		for _, e := range []*Export{s.Suppressions(mine, ""), s.Suppressions(mine, suppressions.Manual),
			s.Logs(mine, requestlog.Filter{}), s.Logs(mine, requestlog.Filter{Status: "4xx", From: now, To: now}),
			s.Emails(teams.System(mine), emails.Filter{}),
			s.Emails(teams.System(mine), emails.Filter{CreatedAfter: now.Add(-time.Hour), CreatedBefore: now})} {
			for _, after := range []string{"", number(5)} {
				if _, _, err := e.readBatch(t.Context(), after); err != nil {
					t.Fatal(err)
				}
			}
		}
		asked := trace.Take()
		if len(asked) < 14 {
			t.Fatalf("%d statements", len(asked))
		}
		for _, x := range asked {
			plan := trace.Plan(t, x)
			if d.Engine() == "sqlite" && (!strings.Contains(plan, "(team_id=?") || strings.Contains(plan, "TEMP B-TREE") ||
				strings.Contains(x.SQL, "id < ") && !strings.Contains(plan, "id<?)")) {
				t.Errorf("%s\n%s", x.SQL, plan)
			}
		}
	})
}

// A row that exists throughout the export appears once in the file, even if other rows are added and deleted during the
// export. Rows that are added during the export are not included.
func TestExportWhileRowsChange(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := newService(t, d)
		const rows = 7000
		suppress(t, d, mine, 0, rows)
		suppress(t, d, others, 100, 10)
		batches := 0
		seen := map[string]int{}
		for batch, err := range s.Suppressions(mine, "").Batches(t.Context(), Options{}) {
			if err != nil {
				t.Fatal(err)
			}
			lines, err := csv.NewReader(bytes.NewReader(batch)).ReadAll()
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range lines {
				seen[line[0]]++
			}
			batches++
			suppress(t, d, mine, rows*batches, 50)
			last := lines[len(lines)-1][0]
			err = d.Update(t.Context(), func(tx *db.Tx) error {
				tx.Queue(t.Context(), `DELETE FROM suppressions WHERE team_id = $1 AND address = ANY($2)`, db.ID(mine),
					[]string{last, "00010@one.example", "06999@one.example"})
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		delete(seen, "email")
		if batches != 4 || len(seen) != rows-1 {
			t.Errorf("%d rows in %d parts", len(seen), batches)
		}
		for address, n := range seen {
			if n != 1 || address == "00010@one.example" || address > "07000" {
				t.Errorf("%s is there %d times", address, n)
			}
		}
	})
}

// hostile contains strings that break files if the writer does not escape them correctly.
var hostile = []string{"", " ", " a ", "a,b", `a"b`, `""`, "a\nb", "a\r\nb", "a\rb", "\r", "\n", ",", "=1+1", "+1",
	"-1", "@SUM(A1)", "\t=1", "'=1", "''=1", "'a", ";", "a;b", "\ufeff", "ü\u2028\u0000x", "\u202e", "{}", `\`, `\"`,
	"=HYPERLINK(\"x\")", "＝1+1", "＋1", "－1", "＠SUM(A1)", "'＝1"}

// FuzzRoundTrip: any string survives writing and reading in either format, and formula quoting can be undone.
func FuzzRoundTrip(f *testing.F) {
	for i := range hostile {
		f.Add(hostile[i], hostile[len(hostile)-1-i])
	}
	f.Add("\xef\xbc", "＝") // not UTF-8, which no database stores
	f.Fuzz(func(t *testing.T, a, b string) {
		given := []string{a, b}
		for _, quote := range []bool{false, true} {
			w := &table{options: Options{QuoteFormulas: quote}}
			for range 2 {
				w.text(a)
				w.number(-5)
				w.text(b)
				w.end()
			}
			lines, err := parse(w.String())
			if err != nil || len(lines) != 2 {
				t.Fatalf("%q is %q, error %v", w, lines, err)
			}
			for _, line := range lines {
				if len(line) != 3 || line[1] != "-5" {
					t.Fatalf("%q has the fields %q", w, line)
				}
				got := []string{line[0], line[2]}
				for i, text := range got {
					if quote && text != "" && strings.ContainsAny(text[:1], "=+-@\t\r\n") ||
						quote && slices.Contains([]string{"＝", "＋", "－", "＠"}, text[:min(len(text), 3)]) {
						t.Errorf("%q is a formula", text)
					}
					if plain, ok := strings.CutPrefix(text, "'"); quote && ok && isFormula(plain) {
						got[i] = plain
					}
				}
				if !slices.Equal(got, given) {
					t.Errorf("%q became %q", given, got)
				}
			}
		}
		w := &table{}
		r := &LogRow{Endpoint: a, UserAgent: &b}
		if err := w.write([]row{r}, NDJSON); err != nil {
			t.Fatal(err)
		}
		var back LogRow
		text := strings.TrimSuffix(w.String(), "\n")
		if err := json.Unmarshal([]byte(text), &back); err != nil || strings.Contains(text, "\n") ||
			back.Endpoint != strings.ToValidUTF8(a, "\ufffd") && !strings.ContainsRune(back.Endpoint, '\ufffd') ||
			back.UserAgent == nil {
			t.Errorf("%q became %q, %v", a, text, err)
		}
	})
}

// parse parses CSV strictly according to RFC 4180.
func parse(text string) (lines [][]string, err error) {
	for text != "" {
		var line []string
		for more := true; more; {
			var field string
			if rest, ok := strings.CutPrefix(text, `"`); ok {
				for {
					i := strings.IndexByte(rest, '"')
					if i < 0 {
						return nil, errors.New("a quoted field has no end")
					}
					field += rest[:i]
					if rest = rest[i+1:]; !strings.HasPrefix(rest, `"`) {
						break
					}
					field, rest = field+`"`, rest[1:]
				}
				text = rest
			} else {
				end := strings.IndexAny(text, ",\r\n\"")
				if end < 0 {
					return nil, errors.New("the last line has no end")
				}
				field, text = text[:end], text[end:]
			}
			line = append(line, field)
			if text, more = strings.CutPrefix(text, ","); more {
				continue
			}
			var ok bool
			if text, ok = strings.CutPrefix(text, "\r\n"); !ok {
				return nil, fmt.Errorf("before %.20q there is no CRLF", text)
			}
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// An export that fails reports an error. Invalid options are rejected before the export writes anything.
func TestExportFails(t *testing.T) {
	t.Parallel()
	dbtest.SQLiteTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		s := newService(t, d)
		suppress(t, d, mine, 0, 2001)
		trace.EachBroken(t, func() {}, func() error {
			for _, err := range s.Suppressions(mine, "").Batches(t.Context(), Options{}) {
				if err != nil {
					return err
				}
			}
			return nil
		}, func(error) {})
		for batch, err := range s.Suppressions(mine, "nonsense").Batches(t.Context(), Options{}) {
			if fault.KindOf(err) != fault.Invalid || batch != nil {
				t.Errorf("%q, %v", batch, err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		n := 0
		for _, err := range s.Suppressions(mine, "").Batches(ctx, Options{}) {
			if n++; n == 1 {
				cancel()
			} else if !errors.Is(err, context.Canceled) {
				t.Errorf("part %d of a request that is canceled: %v", n, err)
			}
		}
		if n != 2 {
			t.Errorf("%d parts", n)
		}
	})
}

func TestParseOptions(t *testing.T) {
	t.Parallel()
	for in, want := range map[[2]string]Options{{}: {Format: CSV}, {"csv", "keep"}: {Format: CSV},
		{"ndjson", "quote"}: {NDJSON, true}} {
		if got, err := ParseOptions(in[0], in[1]); err != nil || got != want {
			t.Errorf("%q is %+v, %v", in, got, err)
		}
	}
	for in, field := range map[[2]string]string{{"xml", ""}: "format", {"CSV", ""}: "format", {"", "yes"}: "formulas"} {
		_, err := ParseOptions(in[0], in[1])
		if f, ok := errors.AsType[*fault.Error](err); !ok || f.Field != field {
			t.Errorf("%q: %v", in, err)
		}
	}
}

// The email export contains the state of each recipient, and covers exactly the requested time span.
func TestExportOfEmails(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := newService(t, d)
		at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
		for _, teamID := range []string{mine, others} {
			insert(t, d, `INSERT INTO emails (id, team_id, actor_id, domain_id, message_id, sender, subject, recipients, tags,
				topic_id, template_id, broadcast_id, last_event, rank, scheduled_at, created_at, actor_kind, content_id, variables)
				VALUES ($1, $2, NULL, NULL, $3, 'a@one.example', $4, $5, '', NULL, NULL, NULL, 5, 40, NULL, $6, 1,
				NULL, '')`,
				0, 600, func(i int) []any {
					created := at.Add(time.Duration(i) * time.Second)
					return []any{db.ID(strings.Replace(id.First(created), "7000", "7"+teamID[len(teamID)-3:], 1)), db.ID(teamID),
						fmt.Sprint(i), strings.ReplaceAll(hostile[i%len(hostile)], "\x00", ""),
						`{"to":["b@two.example","c@two.example"]}`,
						created.UnixMicro()}
				})
			insert(t, d, `INSERT INTO email_recipients (email_id, position, team_id, kind, address, domain, state, rank,
				updated_at) VALUES ($1, $2, $3, 1, $4, 'two.example', $5, 40, $6)`, 0, 1200, func(i int) []any {
				created := at.Add(time.Duration(i/2) * time.Second)
				return []any{db.ID(strings.Replace(id.First(created), "7000", "7"+teamID[len(teamID)-3:], 1)), i % 2,
					db.ID(teamID),
					[]string{"b@two.example", "c@two.example"}[i%2], []int{5, 8}[i%2], created.UnixMicro()}
			})
		}
		lines, err := parse(read(t, s.Emails(teams.System(mine), emails.Filter{}), Options{}))
		if err != nil || len(lines) != 1201 {
			t.Fatalf("%d lines, %v", len(lines), err)
		}
		for i, line := range lines[1:] {
			n := 599 - i/2
			want := []string{[]string{"b@two.example", "c@two.example"}[i%2], []string{"delivered", "bounced"}[i%2],
				strings.ReplaceAll(hostile[n%len(hostile)], "\x00", ""), fmt.Sprint(n)}
			if diff := cmp.Diff(want, []string{line[3], line[5], line[7], line[13]}); diff != "" {
				t.Fatalf("line %d: %s", i, diff)
			}
		}
		within := emails.Filter{CreatedAfter: at.Add(10 * time.Second), CreatedBefore: at.Add(300 * time.Second)}
		rows := json.NewDecoder(strings.NewReader(read(t, s.Emails(teams.System(mine), within), Options{Format: NDJSON})))
		for n := 299; ; n-- {
			var row EmailRow
			err := rows.Decode(&row)
			if err == io.EOF && n == 9 {
				break
			}
			if err != nil || row.MessageID != fmt.Sprint(n) || len(row.Recipients) != 2 || len(row.To) != 2 {
				t.Fatalf("%d: %+v, %v", n, row, err)
			}
		}
	})
}
