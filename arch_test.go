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

// layers are the packages from the top down. A package imports packages of lower layers only; ARCHITECTURE.md says why.
var layers = [][]string{
	{"cmd/postrider", "e2e", "scripts/mutants"},
	{"internal/cli"},
	{"internal/front/api", "internal/dashboard", "internal/front/submission", "internal/front/links", "internal/front/signin", "internal/front/oauth",
		"internal/front/mcp"},
	{"internal/front/web"},
	{"internal/sending/delivery", "internal/outbound/receiving", "internal/sending/tracking", "internal/outbound/webhooks", "internal/campaigns/broadcasts",
		"internal/campaigns/automations", "internal/audience/imports", "internal/outbound/exports", "internal/outbound/privacy", "internal/outbound/eventstream",
		"internal/outbound/notifications", "internal/outbound/retention"},
	{"internal/testnode"},
	resources,
	{"internal/campaigns/automations/engine"},
	{"internal/platform/events", "internal/platform/jobs", "internal/audience/filter", "internal/platform/nodelimits", "internal/platform/erasure", "internal/platform/audit"},
	{"internal/platform/page"},
	{"internal/platform/db/dbtest"},
	{"internal/platform/db"},
	{"internal/mail/smtpclient", "internal/mail/smtpserver", "internal/mail/dkim", "internal/mail/resolve",
		"internal/mail/report", "internal/mail/authres", "internal/mail/milter", "internal/mail/smtpsink",
		"internal/mail/smtptest", "internal/mail/linear", "internal/platform/blob", "internal/platform/keyring", "internal/platform/netguard",
		"internal/lib/config", "internal/platform/schedule", "internal/sending/render"},
	{"internal/mail/mailparse"},
	{"internal/mail/message", "internal/audience/csvfile", "internal/audience/scalar"},
	{"internal/mail/htmltext", "internal/mail/decode", "internal/mail/mailtest", "internal/lib/fault", "internal/lib/id",
		"internal/platform/fairshare", "internal/lib/fileperm", "internal/lib/lograte", "internal/platform/db/dbtest/pgproxy", "internal/platform/blob/blobtest"},
}

// resources may import those named after them.
var resources = []string{"internal/sending/approvals", "internal/sending/emails", "internal/sending/templates", "internal/campaigns/customevents",
	"internal/sending/content", "internal/audience/contacts",
	"internal/sending/domains", "internal/sending/suppressions", "internal/outbound/requestlog", "internal/sending/metrics", "internal/accounts/quotas",
	"internal/accounts/grants", "internal/accounts/members", "internal/accounts/teams", "internal/accounts/users", "internal/sending/preflight"}

// exceptions are pairs of packages of one layer, with the reason.
var exceptions = map[string]string{
	"internal/mail/smtptest internal/mail/dkim": "fixtures may use what they test",
}

func place(pkg string) (layer, within int) {
	for l, pkgs := range layers {
		for i, p := range pkgs {
			if p == pkg {
				return l, i
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
		pkg, ok := strings.CutPrefix(p.ImportPath, module)
		if !ok {
			continue // this package
		}
		layer, within := place(pkg)
		if layer < 0 {
			t.Errorf("%s is in no layer: give it one in arch_test.go and a line in ARCHITECTURE.md", pkg)
			continue
		}
		for _, path := range p.Imports {
			other, ok := strings.CutPrefix(path, module)
			if !ok || exceptions[pkg+" "+other] != "" {
				continue
			}
			l, w := place(other)
			if l > layer || l == layer && slices.Contains(resources, pkg) && w > within {
				continue
			}
			t.Errorf("%s imports %s, which is not below it: pass what is needed in, or use an event listener or a job",
				pkg, other)
		}
	}
	if seen < 10 {
		t.Errorf("go list showed %d packages: the test looks at the wrong place", seen)
	}
}
