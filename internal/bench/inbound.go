package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

const (
	inboundRcpt  = "anyone@inbound.example"
	bigMessage   = 30 << 20
	idleSessions = 500
)

// inbound measures how the node receives mail: stored messages per second, and the memory used by large messages and
// idle connections.
func (b *measurement) inbound(ctx context.Context) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mx := l.Addr().String()
	l.Close()
	stop, err := b.serveDNS()
	if err != nil {
		return err
	}
	defer stop()
	n, err := b.start(ctx, "--smtp-in", mx)
	if err != nil {
		return err
	}
	defer n.stop()
	err = n.addDomain(ctx, apiKey, `{"name":"inbound.example","capabilities":{"receiving":"enabled"}}`)
	if err != nil {
		return fmt.Errorf("add the receiving domain: %w", err)
	}
	t := smtpTraffic{from: "alice@sender.example", to: inboundRcpt}
	load, by := func(ctx context.Context, mx string, sessions, messages, size int) error {
		return b.smtpLoad(ctx, mx, t, sessions, messages, size)
	}, "a generator of its own"
	if path, err := exec.LookPath("smtp-source"); err == nil {
		load, by = smtpSource(path), "smtp-source"
	}
	b.say("Postrider %s on %s: messages of %d bytes, %d sessions of %s", b.env.Version, b.engine(), b.bytes, b.conns, by)
	// The idle connections are measured first, because free heap space after a load would hide their memory usage.
	if err := b.idleConnections(ctx, n, mx, t); err != nil {
		return err
	}
	if err := load(ctx, mx, b.conns, 500, b.bytes); err != nil { // warm-up load
		return err
	}
	var rates []float64
	for range b.runs {
		cpu, start := n.cpu(), time.Now()
		if err := load(ctx, mx, b.conns, b.emails, b.bytes); err != nil {
			return err
		}
		rates = append(rates, float64(b.emails)/time.Since(start).Seconds())
		b.say("received                    %8.0f /s   CPU %.2f ms a message", rates[len(rates)-1],
			(n.cpu()-cpu).Seconds()*1000/float64(b.emails))
	}
	b.say("median                      %8.0f /s   peak memory %.0f MB", median(rates), n.memoryMB("VmHWM"))
	return b.bigMessages(ctx, n, mx, t)
}

// serveDNS starts a DNS server for the measured node, so that sender authentication does not depend on the network. The
// caller must call stop to stop the server.
func (b *measurement) serveDNS() (stop func(), err error) {
	return b.answerDNS(func(q dns.Question) []dns.RR {
		if q.Qtype != dns.TypeTXT || q.Name != "sender.example." {
			return nil
		}
		return []dns.RR{&dns.TXT{Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeTXT, Class: dns.ClassINET, Ttl: 3600},
			Txt: []string{"v=spf1 ip4:127.0.0.0/8 -all"}}}
	})
}

// answerDNS starts a DNS server that answers each question with the records that zone returns. The caller must call
// stop to stop the server.
func (b *measurement) answerDNS(zone func(dns.Question) []dns.RR) (stop func(), err error) {
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("serve DNS: %w", err)
	}
	b.dns = packets.LocalAddr().String()
	server := &dns.Server{PacketConn: packets, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		answer := new(dns.Msg).SetRcode(q, dns.RcodeNameError)
		if len(q.Question) == 1 {
			if answer.Answer = zone(q.Question[0]); answer.Answer != nil {
				answer.Rcode = dns.RcodeSuccess
			}
		}
		_ = w.WriteMsg(answer) // the node retries
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.ActivateAndServe() // the server ends when its socket is closed
	}()
	return func() { packets.Close(); <-done }, nil
}

// bigMessages reports the node's peak memory while it receives 30 MB messages.
func (b *measurement) bigMessages(ctx context.Context, n *measuredNode, mx string, t smtpTraffic) error {
	for _, together := range []int{1, 4} {
		before := n.memoryMB("VmRSS")
		n.forgetPeak()
		if err := b.smtpLoad(ctx, mx, t, together, together, bigMessage); err != nil {
			return err
		}
		b.say("%d of 30 MB at once          %8.0f MB peak   %.0f MB before", together, n.memoryMB("VmHWM"), before)
	}
	return nil
}

// idleConnections reports the memory used by idle SMTP sessions that have sent only EHLO. The sessions come from
// several loopback addresses, because the number of connections per address is limited.
func (b *measurement) idleConnections(ctx context.Context, n *measuredNode, mx string, t smtpTraffic) error {
	// The first connection and message cause one-time allocations, which must not be counted.
	if err := b.smtpLoad(ctx, mx, t, 1, 1, b.bytes); err != nil {
		return err
	}
	before := n.memoryMB("VmRSS")
	var open []*smtpSession
	defer func() {
		for _, s := range open {
			s.conn.Close()
		}
	}()
	for i := range idleSessions {
		s, err := openSMTP(ctx, mx, t, net.IPv4(127, 0, 1, byte(1+i%100)))
		if err != nil {
			return fmt.Errorf("idle connection %d: %w", i+1, err)
		}
		open = append(open, s)
	}
	after, cpu := n.memoryMB("VmRSS"), n.cpu()
	if err := pause(ctx, 2*time.Second); err != nil {
		return err
	}
	b.say("%d idle connections        %8.1f KB each   CPU %.1f%% while they wait", idleSessions,
		(after-before)*1024/idleSessions, (n.cpu()-cpu).Seconds()/2*100)
	return nil
}

// smtpSource runs Postfix's load generator, which reuses its sessions.
func smtpSource(path string) func(ctx context.Context, mx string, sessions, messages, size int) error {
	return func(ctx context.Context, mx string, sessions, messages, size int) error {
		out, err := exec.CommandContext(ctx, path, "-d", "-s", strconv.Itoa(sessions), "-m", strconv.Itoa(messages),
			"-l", strconv.Itoa(size), "-f", "alice@sender.example", "-t", inboundRcpt, mx).CombinedOutput()
		if err != nil {
			return fmt.Errorf("smtp-source: %w: %s", err, out)
		}
		return nil
	}
}

// smtpTraffic describes the messages that the load generator sends.
type smtpTraffic struct {
	from, to string
	auth     string // credentials for AUTH PLAIN; "" sends no AUTH
}

// smtpLoad sends messages of the given size over parallel SMTP sessions.
func (b *measurement) smtpLoad(ctx context.Context, mx string, t smtpTraffic, sessions, messages, size int) error {
	message := t.message(size)
	var next atomic.Int64
	var mu sync.Mutex
	var failed error
	var wg sync.WaitGroup
	for range sessions {
		wg.Go(func() {
			s, err := openSMTP(ctx, mx, t, nil)
			for err == nil && next.Add(1) <= int64(messages) {
				err = s.send(t, message)
			}
			mu.Lock()
			defer mu.Unlock()
			failed = errors.Join(failed, err)
			if s != nil {
				s.conn.Close()
			}
		})
	}
	wg.Wait()
	return failed
}

func (t smtpTraffic) message(size int) []byte {
	var m bytes.Buffer
	m.WriteString("From: Alice <" + t.from + ">\r\nTo: " + t.to + "\r\nSubject: Receipt no. 1234567\r\n" +
		"Date: Wed, 04 Mar 2026 05:06:07 +0000\r\nMessage-ID: <1." + t.from + ">\r\n\r\n")
	line := strings.Repeat("x", 70) + "\r\n"
	for m.Len() < size {
		m.WriteString(line)
	}
	return append(m.Bytes(), ".\r\n"...)
}

// smtpSession is one of the load generator's SMTP connections.
type smtpSession struct {
	conn net.Conn
	text *textproto.Reader
}

func openSMTP(ctx context.Context, mx string, t smtpTraffic, from net.IP) (*smtpSession, error) {
	var d net.Dialer
	if from != nil {
		d.LocalAddr = &net.TCPAddr{IP: from}
	}
	conn, err := d.DialContext(ctx, "tcp", mx)
	if err != nil {
		return nil, err
	}
	s := &smtpSession{conn, textproto.NewReader(bufio.NewReader(conn))}
	if _, _, err = s.text.ReadResponse(220); err == nil {
		err = s.say("EHLO load.example\r\n", 250)
	}
	if err == nil && t.auth != "" {
		err = s.say("AUTH PLAIN "+t.auth+"\r\n", 235)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return s, nil
}

func (s *smtpSession) say(text string, want int) error {
	if _, err := io.WriteString(s.conn, text); err != nil {
		return err
	}
	_, _, err := s.text.ReadResponse(want)
	return err
}

// send sends a message, which must end with the line that contains only a dot.
func (s *smtpSession) send(t smtpTraffic, message []byte) error {
	for _, step := range []struct {
		text string
		want int
	}{{"MAIL FROM:<" + t.from + ">\r\n", 250}, {"RCPT TO:<" + t.to + ">\r\n", 250}, {"DATA\r\n", 354}} {
		if err := s.say(step.text, step.want); err != nil {
			return err
		}
	}
	if _, err := s.conn.Write(message); err != nil {
		return err
	}
	_, _, err := s.text.ReadResponse(250)
	return err
}

// forgetPeak resets the node's recorded peak memory (proc_pid_clear_refs(5)).
func (n *measuredNode) forgetPeak() {
	// If the benchmark is not allowed to reset the peak, it reports the peak of the whole run.
	_ = os.WriteFile("/proc/"+strconv.Itoa(n.pid)+"/clear_refs", []byte("5"), 0)
}
