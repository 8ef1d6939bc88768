package receiving_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
)

// The number of queries before the SMTP reply does not depend on the content of a message.
func TestQueriesOfOneMessage(t *testing.T) {
	eachTraced(t, func(t *testing.T, f *fixture, trace *dbtest.Trace) {
		asked := func(raw string, to ...string) int {
			c, err := f.begin(t, f.Service, "jo@sender.example", to...)
			if err != nil {
				t.Fatal(err)
			}
			trace.Take()
			if _, err := c.Data(t.Context(), strings.NewReader(crlf(raw))); err != nil {
				t.Fatal(err)
			}
			// Rows of events share a statement on PostgreSQL.
			return len(slices.DeleteFunc(trace.Take(), func(s db.Statement) bool { return s.List != nil }))
		}
		forged := func(n int, domain string) string {
			var b strings.Builder
			for range n {
				fmt.Fprintf(&b, " <%s@%s>", id.New(), domain)
			}
			return b.String()
		}
		const head, body = "Message-ID: <1@x.example>\nSubject: x\n", "\nx\n"
		plain := asked(head+body, "a@in.acme.example")
		for name, raw := range map[string]string{
			"references": head + "References:" + forged(1000, "acme.example") + "\n" + body,
			"references and the reply": head + "In-Reply-To:" + forged(1000, "acme.example") + "\nReferences:" +
				forged(1000, "acme.example") + "\n" + body,
			"references of others": head + "References:" + forged(1000, "x.example") + "\n" + body,
		} {
			if n := asked(raw, "a@in.acme.example"); n > plain+2 {
				t.Errorf("%s: %d statements, and %d without", name, n, plain)
			}
		}
		var to []string
		var about strings.Builder
		for i := range 40 {
			to = append(to, fmt.Sprintf("a%d@gone.example", i))
			fmt.Fprintf(&about, "Final-Recipient: rfc822; a%d@gone.example\nAction: failed\nStatus: 5.2.2\nDiagnostic-Code: "+
				"smtp; 552 5.2.2 full\n\n", i)
		}
		at := f.returnTo(f.send(to...), "gone.example")
		report := dsn("failed", "5.2.2", to[0], "552 5.2.2 full")
		first := asked(report, at)
		report = strings.Replace(report, "Final-Recipient:", about.String()+"Final-Recipient:", 1)
		f.types()
		again := asked(report, at)
		if n := len(f.types()); n != len(to)-1 {
			t.Errorf("%d events, want %d", n, len(to)-1)
		}
		if again > first+len(to)+5 { // each recipient needs an update, which is queued without waiting for its result
			t.Errorf("a report on %d recipients: %d statements, and %d on one", len(to), again, first)
		}
		var files strings.Builder
		files.WriteString(head + "Content-Type: multipart/mixed; boundary=b\n\n")
		for i := range 900 {
			fmt.Fprintf(&files, "--b\nContent-Type: application/pdf; name=f%d\n\n%d\n", i, i)
		}
		if n := asked(files.String()+"--b--\n", "a@in.acme.example"); n > plain {
			t.Errorf("900 files: %d statements, and %d without", n, plain)
		}
		if n := asked(head+body, slices.Repeat([]string{"a@in.acme.example"}, 50)...); n > plain {
			t.Errorf("one recipient 50 times: %d statements, and %d for once", n, plain)
		}
		refs := head + "References:" + forged(100, "acme.example") + "\n" + body
		one := asked(refs, "a@in.acme.example")
		var many []string
		for i := range 20 {
			team, err := f.Teams.Create(t.Context(), fmt.Sprint("Team ", i), "")
			if err != nil {
				t.Fatal(err)
			}
			many = append(many, "a@"+f.ManagedHost(team.ID))
		}
		const lookUps = 2 // of references, for all teams together
		if n := asked(refs, many...); n > len(many)*plain+lookUps {
			t.Errorf("%d teams: %d statements, and %d for one", len(many), n, one)
		}
	})
}

// Threads are looked up with an index. The cost of a look-up does not grow with the number of messages that have the
// same Message-ID.
func TestThreadsByIndex(t *testing.T) {
	eachTraced(t, func(t *testing.T, f *fixture, trace *dbtest.Trace) {
		c, err := f.begin(t, f.Service, "jo@sender.example", "a@in.acme.example")
		if err != nil {
			t.Fatal(err)
		}
		trace.Take()
		raw := "References: <1@x.example> <" + id.New() + "@acme.example>\n\nx\n"
		if _, err := c.Data(t.Context(), strings.NewReader(crlf(raw))); err != nil {
			t.Fatal(err)
		}
		looked := map[string]string{" FROM received_emails ": "received_emails_message",
			" FROM emails ": "_pkey on emails|emails USING PRIMARY KEY (team_id=? AND id=?)|_team_id_id_idx on emails"}
		for _, s := range trace.Take() {
			for from, indexes := range looked {
				if !strings.Contains(s.SQL, "SELECT") || !strings.Contains(strings.Join(strings.Fields(s.SQL), " "),
					strings.TrimSpace(from)+" ") {
					continue
				}
				delete(looked, from)
				plan := trace.Plan(t, s)
				if !slices.ContainsFunc(strings.Split(indexes, "|"), func(name string) bool {
					return strings.Contains(plan,
						name)
				}) ||
					strings.Contains(plan, "Sort") || strings.Contains(plan, "TEMP B-TREE") {
					t.Errorf("%s is run as\n%s", s.SQL, plan)
				}
			}
		}
		if len(looked) > 0 {
			t.Errorf("no look-up by %v", looked)
		}
	})
}

// A conversation that a sent email started is found however long it is, and however many messages have the same
// Message-ID.
func TestLongThreads(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		sent := f.send("jo@sender.example")
		refs := "References: <" + sent + "@acme.example>"
		for i := range 200 {
			refs += fmt.Sprintf(" <%d@gone.example>", i)
		}
		f.deliver(t, "Message-ID: <a@x.example>\n"+refs+"\n\nx\n", "a@in.acme.example")
		f.deliver(t, "Message-ID: <b@x.example>\n\nx\n", "a@in.acme.example")
		for range 3 {
			f.deliver(t, "Message-ID: <a@x.example>\nIn-Reply-To: <b@x.example>\n\nx\n", "a@in.acme.example")
		}
		f.deliver(t, "Message-ID: <c@x.example>\nIn-Reply-To: <a@x.example>\n\nx\n", "a@in.acme.example")
		all := f.list(t, f.Acme.TeamID)
		b := all[len(all)-2].ID
		for i, want := range []string{sent, b, b, b, b, sent} {
			if all[i].ThreadID != want {
				t.Errorf("message %d from the last is of thread %s, want %s", i, all[i].ThreadID, want)
			}
		}
	})
}

// A return path that occurs twice in an SMTP envelope causes only one event.
func TestRepeatedReturnPath(t *testing.T) {
	eachTraced(t, func(t *testing.T, f *fixture, trace *dbtest.Trace) {
		email := f.send("ann@gone.example")
		at := f.returnTo(email, "gone.example")
		f.deliver(t, dsn("failed", "5.1.1", "ann@gone.example", "550 5.1.1 unknown"), at, strings.ToUpper(at), at)
		if got := f.types(); !slices.Equal(got, []events.Type{events.SuppressionAdded, events.EmailBounced}) {
			t.Errorf("events %v", got)
		}
	})
}
