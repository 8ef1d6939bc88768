package arc_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/arc"
	"github.com/postrider/postrider/internal/mail/dkim"
	"github.com/postrider/postrider/internal/mail/dkim/dkimtest"
	"github.com/postrider/postrider/internal/mail/resolve"
)

const message = "From: Ann <ann@author.example>\r\nTo: bob@first.example\r\nSubject: A chain  of\r\n hosts\r\n" +
	"Date: Sat, 01 Jun 2024 10:00:00 +0000\r\nMessage-ID: <1@author.example>\r\n\r\nHello,  Bob. \r\n\r\nBye\r\n\r\n"

var at = time.Date(2024, 6, 1, 10, 0, 0, 0, time.UTC)

// zone holds the keys of sealers.
type zone map[string]string

func (z zone) lookup(_ context.Context, name string) ([]string, error) {
	if text, ok := z[name]; ok {
		if text == "" {
			return nil, fmt.Errorf("look up %s: %w", name, resolve.ErrTemporary)
		}
		return []string{text}, nil
	}
	return nil, fmt.Errorf("look up %s: %w", name, resolve.ErrNotFound)
}

func (z zone) verify(t testing.TB, msg string) arc.Chain {
	t.Helper()
	return arc.Verify(t.Context(), z.lookup, strings.NewReader(msg))
}

// keys are those of the hosts, which are the same in all tests.
var keys sync.Map

func keyOf(t testing.TB, domain string) *dkim.Key {
	t.Helper()
	key, err := dkimtest.RSA()
	if err != nil {
		t.Fatal(err)
	}
	kept, _ := keys.LoadOrStore(domain, key)
	return kept.(*dkim.Key)
}

// hop seals a message as host n, whatever the state of the chain is.
func (z zone) hop(t testing.TB, msg string, n int) (string, error) {
	t.Helper()
	domain := fmt.Sprintf("hop%d.example", n)
	s := dkim.Signer{Domain: domain, Selector: "s1", Key: keyOf(t, domain)}
	z["s1._domainkey."+domain] = s.Key.Record()
	out, err := arc.Seal([]byte(msg), z.verify(t, msg), s.Domain+"; spf=pass smtp.mailfrom=author.example; "+
		"dkim=none; dmarc=pass header.from=author.example", s, at)
	return string(out) + msg, err
}

// chain returns a message that a number of hosts sealed.
func (z zone) chain(t testing.TB, hops int) string {
	t.Helper()
	msg := message
	for n := 1; n <= hops; n++ {
		var err error
		if msg, err = z.hop(t, msg, n); err != nil {
			t.Fatal(err)
		}
	}
	return msg
}

func TestChains(t *testing.T) {
	t.Parallel()
	z := zone{}
	if c := z.verify(t, message); c.State != arc.None || c.Describe() != "" {
		t.Errorf("without sets: %+v", c)
	}
	for _, n := range []int{1, 2, 5, arc.MaxSets} {
		msg := z.chain(t, n)
		c := z.verify(t, msg)
		if c.State != arc.Pass || len(c.Sets) != n || c.Reason != "" {
			t.Fatalf("%d hops: %s at %d: %s", n, c.State, c.Instance, c.Reason)
		}
		if last := c.Sets[n-1]; last.Instance != n || last.Sealer != fmt.Sprintf("hop%d.example", n) ||
			!strings.HasPrefix(last.Results, last.Sealer+"; spf=pass smtp.mailfrom=author.example; dkim=none") {
			t.Errorf("%d hops: the last set is %+v", n, last)
		}
		for line := range strings.SplitSeq(msg, "\r\n") {
			if len(line) > 78 {
				t.Errorf("a line has %d characters: %s", len(line), line)
			}
		}
		if n < arc.MaxSets {
			if got := c.Describe(); n == 2 && got != "2 sets, sealed by hop1.example, hop2.example" {
				t.Errorf("described as %q", got)
			}
			continue
		}
		if _, err := z.hop(t, msg, n+1); !errors.Is(err, arc.ErrEnded) {
			t.Errorf("set 51: %v", err)
		}
		more := strings.ReplaceAll(msg[:strings.Index(msg, "ARC-Seal: i=49;")], "i=50;", "i=51;") + msg
		if c := z.verify(t, more); c.State != arc.Fail || !strings.Contains(c.Reason, "number from 1 to 50") {
			t.Errorf("a chain with an instance 51: %+v", c)
		}
	}
}

// fields returns the names with their instances, and the whole fields.
var fields = regexp.MustCompile(`(?m)^(ARC-[A-Za-z-]+): i=(\d);(?:.*\n)(?:[ \t].*\n)*`)

// Each field of each set is removed, doubled and changed.
func TestAlteredFields(t *testing.T) {
	t.Parallel()
	z := zone{}
	msg := z.chain(t, 3)
	all := fields.FindAllStringSubmatch(msg, -1)
	if len(all) != 9 {
		t.Fatalf("%d fields", len(all))
	}
	for _, f := range all {
		whole, name, n := f[0], f[1], int(f[2][0]-'0')
		what := fmt.Sprintf("%s %d", name, n)
		if c := z.verify(t, strings.Replace(msg, whole, "", 1)); c.State != arc.Fail || c.Instance != n {
			t.Errorf("%s removed: %s at %d: %s", what, c.State, c.Instance, c.Reason)
		}
		if c := z.verify(t, strings.Replace(msg, whole, whole+whole, 1)); c.State != arc.Fail || c.Instance != n ||
			!strings.Contains(c.Reason, "two fields") {
			t.Errorf("%s doubled: %s at %d: %s", what, c.State, c.Instance, c.Reason)
		}
		changed := strings.Replace(whole, "example;", "exampel;", 1)
		if changed == whole {
			t.Fatalf("%s has nothing to change: %s", what, whole)
		}
		if c := z.verify(t, strings.Replace(msg, whole, changed, 1)); c.State != arc.Fail {
			t.Errorf("%s changed: %s", what, c.State)
		}
		// White space between words does not matter.
		spaced := strings.Replace(whole, "; ", ";  \t", 1)
		if c := z.verify(t, strings.Replace(msg, whole, spaced, 1)); c.State != arc.Pass {
			t.Errorf("%s with more white space: %s at %d: %s", what, c.State, c.Instance, c.Reason)
		}
	}
}

func TestAlteredMessages(t *testing.T) {
	t.Parallel()
	z := zone{}
	msg := z.chain(t, 2)
	for name, test := range map[string]struct{ raw, reason string }{
		"body":           {strings.Replace(msg, "Bob. ", "Rob. ", 1), "the body was changed"},
		"subject":        {strings.Replace(msg, "Subject: A", "Subject: B", 1), "does not match"},
		"second subject": {"Subject: mine\r\n" + msg, "does not match"},
		"cv":             {strings.Replace(msg, "cv=pass", "cv=none", 1), "must say cv=pass"},
		"no cv":          {strings.Replace(msg, "cv=none;", "", 1), "must say cv=none"},
		"seal with h":    {strings.Replace(msg, "cv=pass;", "cv=pass; h=from;", 1), "has a tag h"},
		"algorithm":      {strings.Replace(msg, "a=rsa-sha256; cv=pass", "a=rsa-sha1; cv=pass", 1), "not supported"},
		"covers seals":   {strings.Replace(msg, "h=From:", "h=ARC-Seal:From:", 1), "ARC-Seal"},
		"without from":   {strings.ReplaceAll(msg, "From:From:", "To:"), "does not cover From"},
		"length":         {strings.Replace(msg, "c=relaxed/relaxed;", "c=relaxed/relaxed; l=1;", 1), "a part of the body"},
		"instance 0":     {strings.Replace(msg, "ARC-Seal: i=2;", "ARC-Seal: i=0;", 1), "number from 1 to 50"},
		"instance 02":    {strings.Replace(msg, "ARC-Seal: i=2;", "ARC-Seal: i=02;", 1), "number from 1 to 50"},
		"no instance":    {strings.Replace(msg, "Results: i=2; ", "Results: ", 1), "instance"},
		"gap":            {strings.ReplaceAll(msg, ": i=2;", ": i=3;"), "the set is missing"},
		"tag twice":      {strings.Replace(msg, "cv=none;", "cv=none; cv=none;", 1), "twice"},
		"no tags":        {strings.Replace(msg, "a=rsa-sha256; cv=none", "nothing; cv=none", 1), "no tag"},
		"long field":     {strings.Replace(msg, "cv=none;", "cv=none; x="+strings.Repeat("x", 17<<10)+";", 1), "KiB"},
	} {
		c := z.verify(t, test.raw)
		if c.State != arc.Fail || !strings.Contains(c.Reason, test.reason) {
			t.Errorf("%s: %s at %d: %q, want %q", name, c.State, c.Instance, c.Reason, test.reason)
		}
	}
	if c := z.verify(t, strings.Replace(msg, "Hello,  Bob. \r\n", "Hello, Bob.\r\n", 1)); c.State != arc.Pass {
		t.Errorf("white space in the body: %+v", c)
	}
	if c := z.verify(t, "Received: from x by y\r\n"+msg); c.State != arc.Pass {
		t.Errorf("a field that is not covered: %+v", c)
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	z := zone{}
	msg := z.chain(t, 1)
	const name = "s1._domainkey.hop1.example"
	good := z[name]
	ed, err := dkim.GenerateEd25519()
	if err != nil {
		t.Fatal(err)
	}
	for record, want := range map[string]arc.State{
		good:                              arc.Pass,
		good + ";":                        arc.Pass,
		good + "; h=sha256; s=*":          arc.Pass,
		"":                                arc.TempError,
		good + "; h=sha1":                 arc.Fail,
		good + "; s=other":                arc.Fail,
		"v=DKIM1; k=rsa; p=":              arc.Fail,
		"v=DKIM2" + good[7:]:              arc.Fail,
		"v=DKIM1; k=rsa; p=AAAA":          arc.Fail,
		"v=DKIM1; k=rsa; p=§":             arc.Fail,
		"nonsense":                        arc.Fail,
		ed.Record():                       arc.Fail,
		good + strings.Repeat(" ", 4<<10): arc.Fail,
	} {
		z[name] = record
		c := z.verify(t, msg)
		if c.State != want || (c.Reason == "") != (want == arc.Pass) {
			t.Errorf("%.60q: %s: %s", record, c.State, c.Reason)
		}
		if want == arc.TempError {
			if _, err := z.hop(t, msg, 2); !errors.Is(err, arc.ErrUnverified) {
				t.Errorf("a chain that cannot be verified is sealed: %v", err)
			}
		}
	}
	delete(z, name)
	if c := z.verify(t, msg); c.State != arc.Fail {
		t.Errorf("without a record: %+v", c)
	}
	s := dkim.Signer{Domain: "a.example", Selector: "s", Key: ed}
	if _, err := arc.Seal([]byte(message), arc.Chain{State: arc.None}, "x; none", s, at); err == nil {
		t.Error("an Ed25519 key seals")
	}
}

// A broken chain gets one last seal, which covers only its own set, and then none.
func TestBrokenChain(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(string) string{
		"body": func(s string) string { return s + "A footer.\r\n" },
		"missing": func(s string) string {
			return fields.ReplaceAllStringFunc(s, func(f string) string {
				if strings.HasPrefix(f, "ARC-Seal: i=1;") {
					return ""
				}
				return f
			})
		},
		"nonsense": func(s string) string { return "ARC-Seal: nonsense\r\n" + s },
		"long fields": func(s string) string {
			return fields.ReplaceAllStringFunc(s, func(f string) string {
				if _, value, _ := strings.Cut(f, ": "); strings.HasPrefix(value, "i=2;") {
					return strings.Replace(f, "i=2;", "i=2;"+strings.Repeat(" \r\n\t", 5<<10), 1)
				}
				return f
			})
		},
	} {
		z := zone{}
		msg, err := z.hop(t, damage(z.chain(t, 2)), 3)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !strings.HasPrefix(msg, "ARC-Seal: i=3; a=rsa-sha256; cv=fail;\r\n") {
			t.Errorf("%s: %.100s", name, msg)
		}
		if c := z.verify(t, msg); c.State != arc.Fail {
			t.Errorf("%s: after the last seal: %+v", name, c)
		}
		if _, err := z.hop(t, msg, 4); !errors.Is(err, arc.ErrEnded) {
			t.Errorf("%s: a further seal: %v", name, err)
		}
	}
}

func TestSealRefuses(t *testing.T) {
	t.Parallel()
	key, err := dkimtest.RSA()
	if err != nil {
		t.Fatal(err)
	}
	s := dkim.Signer{Domain: "a.example", Selector: "s", Key: key}
	for name, test := range map[string]struct {
		msg, results string
		domain       string
	}{
		"no From":     {"To: x@y.example\r\n\r\n", "x", "a.example"},
		"white space": {" From: x@y.example\r\n\r\n", "x", "a.example"},
		"injection":   {message, "x\r\nFrom: me", "a.example"},
		"domain":      {message, "x", "a.example; d=b.example"},
		"no domain":   {message, "x", ""},
		"header":      {strings.Repeat("X: y\r\n", 2001) + message, "x", "a.example"},
	} {
		s.Domain = test.domain
		if out, err := arc.Seal([]byte(test.msg), arc.Chain{State: arc.None}, test.results, s, at); err == nil {
			t.Errorf("%s: sealed with %q", name, out)
		}
	}
}

// The work for a chain is bounded: one look-up per key, and none if the structure is wrong.
func TestLookUps(t *testing.T) {
	t.Parallel()
	z := zone{}
	msg := z.chain(t, 5)
	asked := map[string]int{}
	lookup := func(ctx context.Context, name string) ([]string, error) {
		asked[name]++
		return z.lookup(ctx, name)
	}
	if c := arc.Verify(t.Context(), lookup, strings.NewReader(msg)); c.State != arc.Pass {
		t.Error(c.Reason)
	}
	if len(asked) != 5 {
		t.Errorf("%v", asked)
	}
	for name, n := range asked {
		if n != 1 {
			t.Errorf("%s was looked up %d times", name, n)
		}
	}
	clear(asked)
	arc.Verify(t.Context(), lookup, strings.NewReader(strings.Replace(msg, "cv=none", "cv=pass", 1)))
	if len(asked) != 0 {
		t.Errorf("a chain of wrong structure: %v", asked)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if c := arc.Verify(ctx, lookup, strings.NewReader(msg)); c.State != arc.TempError {
		t.Errorf("after the end of the context: %+v", c)
	}
}

// FuzzVerify checks that no message passes without a valid chain, and that a message that can be sealed verifies
// afterwards.
func FuzzVerify(f *testing.F) {
	z := zone{}
	f.Add(z.chain(f, 2))
	f.Add("ARC-Seal: i=1; cv=none\r\nARC-Message-Signature: i=1\r\nARC-Authentication-Results: i=1; x\r\nFrom: a\n\nb")
	f.Add("From: a@b.example\n\n\n")
	f.Add(" \nFrom:\r")
	f.Fuzz(func(t *testing.T, msg string) {
		c := z.verify(t, msg)
		sealed, err := z.hop(t, msg, 3)
		if err != nil {
			return
		}
		want := map[arc.State]arc.State{arc.None: arc.Pass, arc.Pass: arc.Pass, arc.Fail: arc.Fail}[c.State]
		if again := z.verify(t, sealed); again.State != want {
			t.Errorf("%s becomes %s: %s\n%q", c.State, again.State, again.Reason, sealed)
		}
	})
}
