package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/miekg/dns"
)

// measuredNode is the process in which the measured node runs.
type measuredNode struct {
	cmd  *exec.Cmd
	addr string
	pid  int
}

// deliverDirectly makes the nodes that start afterwards deliver to the sink as the only mail host of each domain. The
// domains have neither TLSA records nor policies.
func (b *measurement) deliverDirectly() (stop func(), err error) {
	_, port, err := net.SplitHostPort(b.sink.Addr())
	if err != nil {
		return nil, err
	}
	stop, err = b.answerDNS(func(q dns.Question) []dns.RR {
		header := dns.RR_Header{Name: q.Name, Rrtype: q.Qtype, Class: dns.ClassINET, Ttl: 3600}
		switch {
		case strings.HasPrefix(q.Name, "_"):
			return nil
		case q.Qtype == dns.TypeMX:
			return []dns.RR{&dns.MX{Hdr: header, Preference: 10, Mx: q.Name}}
		case q.Qtype == dns.TypeA:
			return []dns.RR{&dns.A{Hdr: header, A: net.IPv4(127, 0, 0, 1)}}
		}
		return nil
	})
	b.direct = []string{"--transport", "direct", "--smtp-port", port, "--dns-servers", b.dns}
	return stop, err
}

// start runs this binary as a node that relays to the sink or delivers to it directly, and adds the sending domain.
func (b *measurement) start(ctx context.Context, args ...string) (*measuredNode, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := l.Addr().String()
	l.Close()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	transport := b.direct
	if transport == nil {
		transport = []string{"--relay", b.sink.Addr(), "--relay-tls", "none"}
	}
	args = slices.Concat([]string{"dev", "--data-dir", b.data(), "--http", addr, "--api-key", apiKey, "--rate-limit",
		"0",
		"--domain", "bench.example"}, transport, args)
	cmd := exec.Command(self, args...)
	cmd.Stderr = b.env.ErrOut
	cmd.SysProcAttr = endWithParent()
	cmd.Env = append(os.Environ(), "POSTRIDER_DATABASE_URL="+b.url, "POSTRIDER_DATABASE_DIRECT_URL="+b.directURL,
		"POSTRIDER_PARTITION_BY="+b.partitionBy, "POSTRIDER_SECRET_KEY="+b.secret)
	if b.unsigned {
		cmd.Env = append(cmd.Env, EnvUnsigned+"=1")
	}
	if b.direct != nil {
		cmd.Env = append(cmd.Env, EnvLoopback+"=1")
	}
	if b.dns != "" {
		cmd.Env = append(cmd.Env, "POSTRIDER_DNS_SERVERS="+b.dns)
	}
	if b.profile != "" {
		cmd.Env = append(cmd.Env, EnvProfile+"="+b.profile)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the measured node: %w", err)
	}
	n := &measuredNode{cmd, addr, cmd.Process.Pid}
	if err := n.await(ctx); err != nil {
		n.stop()
		return nil, err
	}
	return n, nil
}

func (n *measuredNode) await(ctx context.Context) error {
	limit := time.Now().Add(30 * time.Second)
	for {
		_, status, err := n.call(ctx, http.MethodGet, "/readyz", "")
		if err == nil && status == http.StatusOK {
			return nil
		}
		if time.Now().After(limit) || ctx.Err() != nil {
			return fmt.Errorf("the measured node did not start: %w", err)
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// addDomain adds a domain to the API key's team and waits until the domain is verified.
func (n *measuredNode) addDomain(ctx context.Context, key, body string) error {
	var made struct {
		ID     string `json:"id"`
		Status string `json:"status"`
	}
	ask := func(method, path, body string, want int) error {
		text, status, err := n.callAs(ctx, key, method, path, body)
		if err == nil && status != want {
			err = fmt.Errorf("%s %s: status %d: %.300s", method, path, status, text)
		}
		if err != nil {
			return err
		}
		return json.Unmarshal(text, &made)
	}
	if err := ask(http.MethodPost, "/domains", body, http.StatusCreated); err != nil {
		return err
	}
	if err := ask(http.MethodPost, "/domains/"+made.ID+"/verify", "", http.StatusOK); err != nil {
		return err
	}
	for limit := time.Now().Add(30 * time.Second); ; {
		if err := ask(http.MethodGet, "/domains/"+made.ID, "", http.StatusOK); err != nil {
			return err
		}
		if made.Status == "verified" {
			return nil
		}
		if time.Now().After(limit) {
			return fmt.Errorf("the domain %s is %s after 30 s", made.ID, made.Status)
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

func (n *measuredNode) call(ctx context.Context, method, path, body string) ([]byte, int, error) {
	return n.callAs(ctx, apiKey, method, path, body)
}

func (n *measuredNode) callAs(ctx context.Context, key, method, path, body string) ([]byte, int, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+n.addr+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return nil, 0, err
	}
	r.Header.Set("Authorization", "Bearer "+key)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, 0, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	return text, answer.StatusCode, err
}

// idle waits until the outcome of every accepted email has been recorded.
func (n *measuredNode) idle(ctx context.Context) error {
	for {
		text, _, err := n.call(ctx, http.MethodGet, "/dev/waiting", "")
		if err != nil {
			return fmt.Errorf("count the waiting emails: %w", err)
		}
		var waiting int
		if err := json.Unmarshal(text, &waiting); err != nil {
			return fmt.Errorf("count the waiting emails: %w", err)
		}
		if waiting == 0 {
			return nil
		}
		// A longer queue is counted less often, because counting uses the node's CPU time.
		if err := pause(ctx, min(10*time.Millisecond+time.Duration(waiting)*50*time.Microsecond, time.Second)); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// cpu returns the CPU time that the node has used.
func (n *measuredNode) cpu() time.Duration { return cpuOf(n.pid) }

// cpuOf returns the CPU time that a process on this machine has used, or 0 if there is no such process.
func cpuOf(pid int) time.Duration {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(f) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * 10 * time.Millisecond // the kernel reports CPU time in hundredths of a second
}

// peakMB returns the node's peak memory in MB.
func (n *measuredNode) peakMB() float64 { return n.memoryMB("VmHWM") }

// memoryMB returns a memory value from proc_pid_status(5) in MB. VmRSS is the node's current memory and VmHWM is its
// peak.
func (n *measuredNode) memoryMB(kind string) float64 {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(n.pid) + "/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if kb, ok := strings.CutPrefix(line, kind+":"); ok {
			v, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(kb), " kB"), 64)
			return v / 1024
		}
	}
	return 0
}

func (n *measuredNode) stop() {
	n.cmd.Process.Signal(syscall.SIGTERM)
	n.cmd.Wait()
}

func median(v []float64) float64 {
	s := slices.Clone(v)
	slices.Sort(s)
	if len(s) == 0 {
		return 0
	}
	return s[len(s)/2]
}
