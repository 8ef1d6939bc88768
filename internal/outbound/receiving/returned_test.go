package receiving_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/events"
)

// TestReturnedMail delivers real bounces to an email's return path. The expected results are in the testdata of package
// report.
func TestReturnedMail(t *testing.T) {
	const dir = "../../mail/report/testdata/returned/"
	names, err := filepath.Glob(dir + "*.eml")
	if err != nil || len(names) < 170 {
		t.Fatalf("%d messages, error %v", len(names), err)
	}
	each(t, func(t *testing.T, f *fixture) {
		for _, name := range names {
			raw, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(strings.TrimSuffix(name, ".eml") + ".want")
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSpace(string(text)), "\n")
			from := strings.Trim(strings.TrimPrefix(lines[0], "from: "), "<>")
			to := strings.Fields(strings.TrimPrefix(lines[1], "to: "))
			want := lines[2:]
			if strings.HasPrefix(want[0], "source: ") {
				want = want[1:]
			}
			if got := f.returned(t, raw, from, to); !slices.Equal(got, want) {
				t.Errorf("%s\n got %q\nwant %q", filepath.Base(name), got, want)
			}
		}
	})
}

// returned sends an email to recipients at dest.example, delivers raw as its bounce, and returns the recipients'
// states.
func (f *fixture) returned(t *testing.T, raw []byte, from string, to []string) (all []string) {
	t.Helper()
	id := f.send(to...)
	session, err := f.begin(t, f.Service, from, f.returnTo(id, "dest.example"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := session.Data(t.Context(), strings.NewReader(crlf(string(raw)))); err != nil {
		t.Fatal(err)
	}
	for _, e := range f.seen.Take() {
		switch e.Type {
		case events.EmailDelayed:
			all = append(all, "delayed "+e.Recipient)
		case events.EmailBounced:
			data, err := json.Marshal(e.Data)
			var b struct{ Type, SubType, Message string }
			if err == nil {
				err = json.Unmarshal(data, &b)
			}
			if err != nil || b.Message == "" {
				t.Errorf("%s, error %v", data, err)
			}
			line := "bounced " + e.Recipient + " " + b.Type + " " + b.SubType
			switch _, err := f.Suppressions.Remove(t.Context(), f.Acme.TeamID, e.Recipient); {
			case err == nil:
				line += " suppress"
			case fault.KindOf(err) != fault.NotFound:
				t.Fatal(err)
			}
			all = append(all, line)
		}
	}
	f.types()
	if all == nil {
		return []string{"nothing"}
	}
	return all
}
