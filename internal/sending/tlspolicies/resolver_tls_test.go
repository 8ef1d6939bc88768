//go:build tls && linux

package tlspolicies_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/postrider/postrider/internal/mail/mtasts/ststest"
)

// inLab is set in the process that has a network of its own, in which only the lab can be reached.
const inLab = "POSTRIDER_TEST_STS_LAB"

// verdicts is a program that prints the verdict of postfix-mta-sts-resolver about each domain in its arguments.
const verdicts = `
import asyncio, json, sys
from postfix_mta_sts_resolver.resolver import STSResolver, STSFetchResult

async def main():
    resolver = STSResolver(loop=asyncio.get_running_loop(), timeout=4)
    for domain in sys.argv[1:]:
        status, policy = await resolver.resolve(domain)
        out = {"domain": domain, "status": status.name}
        if status == STSFetchResult.VALID:
            out["mode"], out["mx"] = policy[1]["mode"], policy[1]["mx"]
        print(json.dumps(out), flush=True)

asyncio.run(main())
`

type verdict struct {
	Domain, Status, Mode string
	MX                   []string
}

// For each case, postfix-mta-sts-resolver has the same verdict about the record and the policy, unless the case says why
// it differs. It looks up names with the machine's settings and connects to port 443, so the test runs again in a
// network namespace with its own resolv.conf, for which it needs root privileges.
func TestResolverAgrees(t *testing.T) {
	if os.Getenv(inLab) == "" {
		isolate(t)
		return
	}
	must(t, "ip", "link", "set", "lo", "up")
	folder := t.TempDir()
	conf := filepath.Join(folder, "resolv.conf")
	write(t, conf, []byte("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"))
	must(t, "mount", "--bind", conf, "/etc/resolv.conf")
	lab := ststest.NewAt(t, "127.0.0.1:53", "127.0.0.1:443")
	root := filepath.Join(folder, "root.pem")
	write(t, root, lab.CA.PEM())
	all := cases(lab)
	args := []string{"-c", verdicts}
	for _, c := range all {
		lab.Set(domainOf(c.name), c.site)
		args = append(args, domainOf(c.name))
	}
	// Debian's Python has Debian's packages, unlike another one that may come first in PATH.
	cmd := exec.CommandContext(t.Context(), "/usr/bin/python3", args...)
	cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+root)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("run python3 with postfix-mta-sts-resolver (apt-get install -y postfix-mta-sts-resolver): %v", err)
	}
	got := map[string]verdict{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var v verdict
		if err := dec.Decode(&v); err != nil {
			t.Fatal(err)
		}
		got[v.Domain] = v
	}
	differ := 0
	for _, c := range all {
		v, ok := got[domainOf(c.name)]
		// It reports a failed look-up of the record as a failed fetch, as it does for a failed fetch.
		same := ok && v.Mode == string(c.mode) && slices.Equal(v.MX, strings.Fields(c.mx)) &&
			(c.mode != "" || c.site.RecordFails || (v.Status == "FETCH_ERROR") == (c.fail != ""))
		if same != (c.differs == "") {
			t.Errorf("%s: the verdict is %+v, ours is %q of %q and %q; expected to differ: %q", c.name, v, c.mode, c.mx,
				c.fail, c.differs)
		}
		if !same {
			differ++
		}
	}
	t.Logf("%d verdicts, of which %d differ for known reasons", len(all), differ)
}

// isolate runs the test in a network and mount namespace of its own.
func isolate(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("this test needs root privileges for a network namespace")
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inLab+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
		Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("in the lab: %v", err)
	}
}

func must(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}
