package arc_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/postrider/postrider/internal/mail/arc"
	"github.com/postrider/postrider/internal/mail/dkim/dkimtest"
	"github.com/postrider/postrider/internal/mail/dkim/rspamdtest"
)

// python returns a Python that has dkimpy, or "".
var python = sync.OnceValue(func() string {
	for _, program := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(program, "-c", "import dkim, authres").Run() == nil {
			return program
		}
	}
	return ""
})

// hasDKIMPy reports whether dkimpy is installed, and says so in the log if it is not.
func hasDKIMPy(t *testing.T) bool {
	t.Helper()
	if python() == "" {
		t.Log("dkimpy (python3-dkim and python3-authres) is not installed, so it judged no chain")
	}
	return python() != ""
}

// script runs a program of dkimpy, which finds the keys of a zone in dns and the messages in msgs.
func script(t *testing.T, z zone, msgs []string, program string, args ...string) string {
	t.Helper()
	folder := t.TempDir()
	for name, of := range map[string]any{"keys": z, "messages": msgs} {
		text, err := json.Marshal(of)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	begin := "import sys, json, dkim\nkeys = json.load(open(sys.argv[1] + '/keys'))\n" +
		"msgs = [m.encode() for m in json.load(open(sys.argv[1] + '/messages'))]\n" +
		"def dns(name, timeout=5):\n    return keys.get(name.decode().rstrip('.'), '').encode()\n"
	args = append([]string{"-c", begin + program, folder}, args...)
	out, err := exec.CommandContext(t.Context(), python(), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("dkimpy: %v\n%s", err, out)
	}
	return string(out)
}

// judge is the program that prints the state of the chain of each message.
const judge = "for m in msgs:\n    print(dkim.arc_verify(m, dnsfunc=dns)[0].decode())"

// dkimpy judges our chains, whole and damaged ones.
func TestDKIMPyVerifiesOurSeals(t *testing.T) {
	t.Parallel()
	if !hasDKIMPy(t) {
		return
	}
	z := zone{}
	var msgs, names, want []string
	add := func(name, msg, state string) {
		names, msgs, want = append(names, name), append(msgs, msg), append(want, state)
	}
	for _, n := range []int{1, 2, 5, arc.MaxSets} {
		msg := z.chain(t, n)
		add(fmt.Sprint(n, " hops"), msg, "pass")
		if n == arc.MaxSets {
			continue
		}
		add("another body", msg+"more\r\n", "fail")
		add("another sealer", strings.Replace(msg, "cv=none;\r\n d=hop1.example", "cv=none;\r\n d=hop2.example", 1), "fail")
		add("another subject", strings.Replace(msg, "Subject: A", "Subject: B", 1), "fail")
	}
	for i, got := range strings.Fields(script(t, z, msgs, judge)) {
		if got != want[i] {
			t.Errorf("%s: %s, want %s", names[i], got, want[i])
		}
	}
}

// dkimpy and we seal in turns, and both verify the chain.
func TestDKIMPySealsInTurns(t *testing.T) {
	t.Parallel()
	if !hasDKIMPy(t) {
		return
	}
	const program = "domain, key = sys.argv[2].encode(), sys.argv[3].encode()\n" +
		"for line in dkim.arc_sign(msgs[0], b's1', domain, key, domain):\n" +
		"    sys.stdout.write(line.decode())\n"
	key, err := dkimtest.RSA()
	if err != nil {
		t.Fatal(err)
	}
	der, err := key.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	secret := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	z := zone{}
	msg := message
	var msgs []string
	for n := 1; n <= 4; n++ {
		if n%2 == 0 {
			if msg, err = z.hop(t, msg, n); err != nil {
				t.Fatal(err)
			}
		} else {
			domain := fmt.Sprintf("their%d.example", n)
			z["s1._domainkey."+domain] = key.Record()
			msg = fmt.Sprintf("Authentication-Results: %s; arc=%s\r\n", domain, z.verify(t, msg).State) + msg
			msg = script(t, z, []string{msg}, program, domain, secret) + msg
		}
		c := z.verify(t, msg)
		if c.State != arc.Pass || len(c.Sets) != n {
			t.Fatalf("after set %d: %s at %d: %s\n%s", n, c.State, c.Instance, c.Reason, msg)
		}
		msgs = append(msgs, msg)
	}
	if got := script(t, z, msgs, judge); strings.Count(got, "pass") != len(msgs) {
		t.Errorf("dkimpy: %s", got)
	}
}

// rspamd judges our chains. It gets the keys from its configuration and asks no DNS server.
func TestRspamdVerifiesOurSeals(t *testing.T) {
	t.Parallel()
	if rspamdtest.Program() == "" {
		t.Log("rspamd is not installed, so it judged no chain")
		return
	}
	z := zone{}
	type sample struct{ name, msg, want string }
	var samples []sample
	for _, n := range []int{1, 2, 5} {
		msg := z.chain(t, n)
		samples = append(samples, sample{fmt.Sprint(n, " hops"), msg, "ARC_ALLOW"},
			sample{fmt.Sprint(n, " hops, changed"), strings.Replace(msg, "Bye", "Buy", 1), "ARC_REJECT"})
	}
	samples = append(samples, sample{"no chain", message, "ARC_NA"})
	server := rspamdtest.Start(t, z, 1)
	for _, s := range samples {
		symbols, err := server.Check(t, []byte(s.msg))
		if _, ok := symbols[s.want]; err != nil || !ok {
			t.Errorf("%s: %v, %v, want %s", s.name, symbols, err, s.want)
		}
	}
}
