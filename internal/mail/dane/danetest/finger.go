package danetest

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Verdicts returns the verdicts of Postfix about all domains, and the output of posttls-finger. The process must be
// isolated (see Isolate).
//
// posttls-finger stops at the first host that holds a conversation. Postfix's delivery agent continues with the next
// host if a certificate does not match. Verdicts therefore runs the program once for each host.
func (l *Lab) Verdicts() (verdicts map[string]Verdict, said map[string]string) {
	l.t.Helper()
	write(l.t, filepath.Join(l.dir, "main.cf"), "compatibility_level = 3.6\ninet_protocols = ipv4\n"+
		"dnssec_probe = ns:"+Zone+"\n")
	verdicts, said = map[string]Verdict{}, map[string]string{}
	program := find(l.t, "posttls-finger", "postfix")
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(8)
	for _, d := range l.Domains {
		group.Go(func() error {
			names := []string{d.Name}
			if d.Hosts > 1 {
				names = nil
				for i := range d.Hosts {
					names = append(names, fmt.Sprintf("%d.%s", i+1, d.Name))
				}
			}
			verdict, all := Waits, ""
			for _, name := range names {
				v, text, err := l.finger(program, name)
				if err != nil {
					return err
				}
				if all += text; v != Waits {
					verdict = v
					break
				}
			}
			mu.Lock()
			defer mu.Unlock()
			verdicts[d.Name], said[d.Name] = verdict, all
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		l.t.Fatal(err)
	}
	return verdicts, said
}

func (l *Lab) finger(program, domain string) (Verdict, string, error) {
	ctx, cancel := context.WithTimeout(l.t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "-c", "-l", "dane",
		"-p", ">=TLSv1.2", // older versions are deprecated (RFC 8996)
		"-M", "may", // no DANE if the MX records are not authenticated (RFC 7672 section 2.2.1)
		"-L", "summary,certmatch,verbose", "-t", "5", "-T", "5", domain)
	cmd.Env = append(cmd.Environ(), "MAIL_CONFIG="+l.dir)
	out, err := cmd.CombinedOutput()
	said := string(out)
	if strings.Contains(said, "fatal:") || ctx.Err() != nil {
		return "", "", fmt.Errorf("posttls-finger %s: %v\n%s", domain, err, said)
	}
	has := func(text string) bool { return strings.Contains(said, text) }
	found := (has("DNSSEC-signed TLSA record") || has("unsupported TLSA")) && !has("MX RRset is insecure")
	usable := found && has("DNSSEC-signed TLSA record") && !has("all TLSA records unusable")
	switch {
	case has("lookup error"), has("lookup failed"):
		return Waits, said, nil
	case usable && has("Verified TLS connection established"):
		return Verified, said, nil
	case usable:
		return Waits, said, nil
	case has("TLS connection established"):
		return Encrypted, said, nil
	case found:
		return Waits, said, nil // if all TLSA records are unusable, smtp(8) demands TLS
	}
	return Clear, said, nil
}
