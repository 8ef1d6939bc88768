// Package postrider holds the law of imports; the program is in cmd/postrider.
package postrider

import (
	"encoding/json"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/postrider/postrider/"

// floors are the rooms from the top down. A room imports those of lower floors only; ARCHITECTURE.md says why.
var floors = [][]string{
	{"cmd/postrider", "e2e", "scripts/mutants"},
	{"internal/cli"},
	{"internal/api", "internal/dashboard", "internal/submission", "internal/links", "internal/oauth"},
	{"internal/delivery", "internal/receiving", "internal/webhooks", "internal/live", "internal/automations",
		"internal/broadcasts", "internal/notices", "internal/retention"},
	resources,
	{"internal/mail/smtpclient", "internal/mail/smtpserver", "internal/mail/message", "internal/mail/dkim", "internal/mail/resolve",
		"internal/mail/report", "internal/mail/authres", "internal/mail/milter", "internal/mail/smtpsink", "internal/mail/smtptest", "internal/mail/linear"},
	{"internal/jobs", "internal/quota"},
	{"internal/page", "internal/db/dbtest"},
	{"internal/db"},
	{"internal/blob", "internal/keyring", "internal/netguard", "internal/config", "internal/schedule",
		"internal/render", "internal/fault", "internal/id"},
	{"internal/fair", "internal/private", "internal/lograte", "internal/db/dbtest/pgproxy", "internal/blob/blobtest"},
}

// resources may use those named after them.
var resources = []string{"internal/emails", "internal/templates", "internal/content", "internal/contacts", "internal/domains",
	"internal/suppressions", "internal/requestlog", "internal/metrics", "internal/teams", "internal/events",
	"internal/erasure"}

// exceptions are pairs of rooms of one floor, with the reason.
var exceptions = map[string]string{
	"internal/db internal/fault":                 "fault and id are words rather than rooms",
	"internal/mail/smtptest internal/mail/dkim":  "fixtures may use what they test",
	"internal/mail/report internal/mail/message": "a report is a message: one reader of MIME, as tolerant for both",
}

func place(room string) (floor, within int) {
	for f, rooms := range floors {
		for i, r := range rooms {
			if r == room {
				return f, i
			}
		}
	}
	return -1, -1
}

func TestImportsRunDownward(t *testing.T) {
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	seen := 0
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; seen++ {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		room, ok := strings.CutPrefix(p.ImportPath, module)
		if !ok {
			continue // this package
		}
		floor, within := place(room)
		if floor < 0 {
			t.Errorf("%s is not in the plan: give it a floor in arch_test.go and a line in ARCHITECTURE.md", room)
			continue
		}
		for _, path := range p.Imports {
			other, ok := strings.CutPrefix(path, module)
			if !ok || exceptions[room+" "+other] != "" {
				continue
			}
			f, w := place(other)
			switch {
			case f > floor:
			case f == floor && room != other && strings.HasPrefix(room, "internal/") && slices.Contains(resources, room) && w > within:
			default:
				t.Errorf("%s imports %s, which is not below it: pass what is needed in, or let it come through an event listener or a job",
					room, other)
			}
		}
	}
	if seen < 10 {
		t.Errorf("go list showed %d packages: the test looks at the wrong place", seen)
	}
}
