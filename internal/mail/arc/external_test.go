package arc_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/freeport"
	"github.com/postrider/postrider/internal/mail/arc"
	"github.com/postrider/postrider/internal/mail/dkim/dkimtest"
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
	program, err := exec.LookPath("rspamd")
	if err != nil {
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
	address := startRspamd(t, program, z)
	for _, s := range samples {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/checkv2",
			strings.NewReader(s.msg))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		var out struct {
			Symbols map[string]any `json:"symbols"`
		}
		err = json.NewDecoder(resp.Body).Decode(&out)
		resp.Body.Close()
		if _, ok := out.Symbols[s.want]; err != nil || !ok {
			t.Errorf("%s: %v, %v, want %s", s.name, out.Symbols, err, s.want)
		}
	}
}

// startRspamd starts an rspamd with nothing but its ARC module, and returns the address of its worker.
func startRspamd(t *testing.T, program string, z zone) string {
	t.Helper()
	folder, address := t.TempDir(), freeport.Addr(t)
	var records strings.Builder
	for name, text := range z {
		fmt.Fprintf(&records, "{ name = %q; type = txt; replies = [%q]; },\n", name, text)
	}
	conf := fmt.Sprintf(`
options { pidfile = "%[1]s/pid"; filters = "dkim"; url_tld = "%[1]s/tld"; task_timeout = 20s;
  control_socket = "%[1]s/control";
  dns { nameserver = ["127.0.0.1:1"]; fake_records = [ %[2]s ]; } }
logging { type = "file"; filename = "%[1]s/log"; level = "info"; }
worker "normal" { bind_socket = "%[3]s"; count = 1; task_timeout = 20s; }
metric { name = "default"; actions { reject = 100; } }
lua = "/usr/share/rspamd/rules/rspamd.lua";
modules { path = "/usr/share/rspamd/plugins/arc.lua"; }
dkim { }
arc { sign_networks = []; whitelisted_signers_map = []; }
`, folder, records.String(), address)
	for name, text := range map[string]string{"conf": conf, "tld": "example\n"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), program, "-f", "-i", "-c", filepath.Join(folder, "conf"))
	out := &strings.Builder{}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			conn.Close()
			return address
		}
		select {
		case err := <-ended:
			log, _ := os.ReadFile(filepath.Join(folder, "log"))
			t.Fatalf("rspamd ended: %v\n%s\n%s", err, out, log)
		case <-t.Context().Done():
			t.Fatal("rspamd does not answer")
		case <-time.After(50 * time.Millisecond): // until rspamd listens
		}
	}
}
