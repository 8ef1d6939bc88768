package milter_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/netip"
	"net/textproto"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	library "github.com/emersion/go-milter"
	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/mail/milter"
)

func TestMain(m *testing.M) {
	log.SetOutput(io.Discard) // the library's milter server logs every closed connection
	os.Exit(m.Run())
}

// filter is a milter server on a real socket, with a configured response for each step.
type filter struct {
	helo, mail, headers, body, end library.Response
	rcpt                           map[string]library.Response
	modify                         func(*library.Modifier) error
	hang                           <-chan struct{}
	quit                           string // the step at which the filter closes the connection

	mu   sync.Mutex
	told []string
	size int
}

func (f *filter) note(words ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told = append(f.told, strings.Join(words, " "))
}

var errQuit = errors.New("the filter hangs up")

// session handles one connection to a filter.
type session struct {
	library.NoOpMilter
	f *filter
}

func or(r library.Response) (library.Response, error) {
	if r == nil {
		return library.RespContinue, nil
	}
	return r, nil
}

func (s session) Connect(host, family string, port uint16, addr net.IP, m *library.Modifier) (library.Response, error) {
	if s.f.quit == "connect" {
		return nil, errQuit
	}
	s.f.note("connect", host, family, addr.String(), m.Macros["j"])
	return or(nil)
}

func (s session) Helo(name string, _ *library.Modifier) (library.Response, error) {
	if s.f.quit == "helo" {
		return nil, errQuit
	}
	s.f.note("helo", name)
	return or(s.f.helo)
}

func (s session) MailFrom(from string, m *library.Modifier) (library.Response, error) {
	if s.f.quit == "mail" {
		return nil, errQuit
	}
	s.f.note("mail", from, m.Macros["i"])
	return or(s.f.mail)
}

func (s session) RcptTo(to string, _ *library.Modifier) (library.Response, error) {
	if s.f.quit == "rcpt" {
		return nil, errQuit
	}
	s.f.note("rcpt", to)
	return or(s.f.rcpt[to])
}

func (s session) Header(name, value string, _ *library.Modifier) (library.Response, error) {
	if s.f.quit == "header" {
		return nil, errQuit
	}
	s.f.note("header", name, value)
	return or(nil)
}

func (s session) Headers(textproto.MIMEHeader, *library.Modifier) (library.Response, error) {
	if s.f.quit == "headers" {
		return nil, errQuit
	}
	return or(s.f.headers)
}

func (s session) BodyChunk(chunk []byte, _ *library.Modifier) (library.Response, error) {
	if s.f.quit == "body" {
		return nil, errQuit
	}
	s.f.mu.Lock()
	s.f.size += len(chunk)
	s.f.mu.Unlock()
	return or(s.f.body)
}

func (s session) Body(m *library.Modifier) (library.Response, error) {
	if s.f.quit == "end" {
		return nil, errQuit
	}
	if s.f.hang != nil {
		<-s.f.hang
	}
	if s.f.modify != nil {
		if err := s.f.modify(m); err != nil {
			return nil, err
		}
	}
	if s.f.end == nil {
		return library.RespAccept, nil
	}
	return s.f.end, nil
}

// start starts the filter and returns its address.
func (f *filter) start(t *testing.T, network string) string {
	t.Helper()
	address, form := "127.0.0.1:0", "inet:"
	if network == "unix" {
		// Socket paths must be short, but the temporary directory of a test may have a long path.
		dir, err := os.MkdirTemp("", "milter")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		address, form = filepath.Join(dir, "s"), "unix:"
	}
	listener, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	server := &library.Server{NewMilter: func() library.Milter { return session{f: f} }, Actions: library.OptAddHeader}
	go server.Serve(listener)
	t.Cleanup(func() { listener.Close() })
	return form + listener.Addr().String()
}

const raw = "X-Empty:\r\nReceived: from a\r\n\tby b\r\nFrom: a@example.com\r\nno field\r\nX-Odd :  " +
	"b\x00c\r\n\r\nHello\r\nX-Body: no\r\n"

func message(raw string) milter.Message {
	return milter.Message{
		ID: "q1", Client: netip.MustParseAddrPort("192.0.2.1:4321"), Hello: "out.example", MailFrom: "a@example.com",
		Recipients: []string{"b@example.net", "c@example.net"}, Raw: strings.NewReader(raw), Size: int64(len(raw)),
	}
}

func consult(t *testing.T, c milter.Config, m milter.Message) (milter.Verdict, error) {
	t.Helper()
	c.Hostname = "mx.example"
	client, err := milter.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return client.Consult(t.Context(), m)
}

func TestWhatAFilterIsTold(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"tcp", "unix"} {
		f := new(filter)
		v, err := consult(t, milter.Config{Address: f.start(t, network)}, message(raw))
		if diff := cmp.Diff(milter.Verdict{}, v); diff != "" || err != nil {
			t.Errorf("%s: %v %s", network, err, diff)
		}
		want := []string{"connect [192.0.2.1] tcp4 192.0.2.1 mx.example", "helo out.example", "mail a@example.com q1",
			"rcpt b@example.net", "rcpt c@example.net", "header X-Empty ", "header Received from a\n\tby b",
			"header From a@example.com", "header X-Odd  b c"}
		if diff := cmp.Diff(want, f.told); diff != "" {
			t.Errorf("%s: %s", network, diff)
		}
		if want := len("Hello\r\nX-Body: no\r\n"); f.size != want {
			t.Errorf("%s: body of %d bytes, want %d", network, f.size, want)
		}
	}
}

// A filter receives the client's address and, if known, the client's name.
func TestClientsOfAllKinds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ addr, name, want string }{
		{"[2001:db8::1]:25", "", "connect [2001:db8::1] tcp6 2001:db8::1 mx.example"},
		{"[::ffff:192.0.2.1]:25", "", "connect [192.0.2.1] tcp4 192.0.2.1 mx.example"},
		{"[fe80::1%eth0]:25", "", "connect [fe80::1] tcp6 fe80::1 mx.example"},
		{"192.0.2.1:25", "out.example\r\n x", "connect out.example x tcp4 192.0.2.1 mx.example"},
		{"", "", "connect unknown unknown <nil> mx.example"},
	} {
		f := new(filter)
		m := message(raw)
		m.ClientName = c.name
		m.Client, _ = netip.ParseAddrPort(c.addr)
		if _, err := consult(t, milter.Config{Address: f.start(t, "tcp")}, m); err != nil || len(f.told) == 0 ||
			f.told[0] != c.want {
			t.Errorf("%s %q: %q, %v; want %s", c.addr, c.name, f.told, err, c.want)
		}
	}
}

// The client limits how many fields a filter can add, and how long each name and value can be.
func TestBoundsOfAdditions(t *testing.T) {
	t.Parallel()
	name, text := strings.Repeat("n", 76), strings.Repeat("t", 4096)
	f := &filter{modify: func(m *library.Modifier) error {
		all := []error{m.AddHeader(name, text), m.AddHeader(name, text+"t"), m.AddHeader(name+"n", "x"),
			m.AddHeader("X~", "x"), m.AddHeader("X\x7f", "x"),
			m.AddHeader("X\xc3\xa9", "x"), m.AddHeader("X:", "x")}
		for range 98 {
			all = append(all, m.AddHeader("X-More", "x"))
		}
		return errors.Join(all...)
	}}
	v, err := consult(t, milter.Config{Address: f.start(t, "tcp")}, message(raw))
	if err != nil || len(v.Headers) != 100 {
		t.Fatalf("%d fields, %v", len(v.Headers), err)
	}
	want := []milter.Field{{Name: name, Value: text}, {Name: name, Value: text}, {Name: "X~", Value: "x"},
		{Name: "X-More", Value: "x"}}
	if diff := cmp.Diff(want, v.Headers[:4]); diff != "" {
		t.Error(diff)
	}
}

// The client sends header fields with their folds, but removes one space after the colon and replaces CR and NUL with
// spaces.
func TestFields(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 64<<10)
	for in, want := range map[string][]milter.Field{
		"":                            nil,
		"A:b":                         {{Name: "A", Value: "b"}},
		"A:  b\r\n":                   {{Name: "A", Value: " b"}},
		"A: b\n c\n\td\nB: e\n\nC: f": {{Name: "A", Value: "b\n c\n\td"}, {Name: "B", Value: "e"}},
		"A \t: b\n":                   {{Name: "A", Value: "b"}},
		" x\nA: b\n":                  {{Name: "A", Value: "b"}},
		"no field\n x\nA: b\n":        {{Name: "A", Value: "b"}},
		": x\nA: b\n":                 {{Name: "A", Value: "b"}},
		"A B: x\nA: b\n":              {{Name: "A", Value: "b"}},
		"A: b\rc\x00d\r\n":            {{Name: "A", Value: "b c d"}},
		"A:" + long[:64<<10-2]:        {{Name: "A", Value: long[:64<<10-2]}},
		"A:" + long + "\nB: c\n":      {{Name: "A", Value: long[:64<<10-2]}, {Name: "B", Value: "c"}},
		"A: b\n " + long + "\nB: c\n": {{Name: "A", Value: "b\n " + long[:64<<10-3]}, {Name: "B", Value: "c"}},
	} {
		got, body, err := milter.Fields(strings.NewReader(in), int64(len(in)))
		if err != nil {
			t.Errorf("%.40q: %v", in, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%.40q: %.400s", in, diff)
		}
		end := len(in)
		if i := strings.Index(in, "\n\n"); i >= 0 {
			end = i + 2
		}
		if body != int64(end) {
			t.Errorf("%.40q: the body is at %d, want %d", in, body, end)
		}
	}
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	reply := func(text string) library.Response { return library.NewResponseStr('y', text) }
	for name, test := range map[string]struct {
		f    *filter
		want milter.Verdict
	}{
		"accept":           {&filter{}, milter.Verdict{}},
		"accept early":     {&filter{helo: library.RespAccept, end: library.RespReject}, milter.Verdict{}},
		"continue":         {&filter{end: library.RespContinue}, milter.Verdict{}},
		"reject":           {&filter{end: library.RespReject}, milter.Verdict{Action: milter.Reject}},
		"reject the HELO":  {&filter{helo: library.RespReject}, milter.Verdict{Action: milter.Reject}},
		"reject in MAIL":   {&filter{mail: library.RespReject}, milter.Verdict{Action: milter.Reject}},
		"reject in header": {&filter{headers: library.RespReject}, milter.Verdict{Action: milter.Reject}},
		"reject in body":   {&filter{body: library.RespReject}, milter.Verdict{Action: milter.Reject}},
		"tempfail":         {&filter{end: library.RespTempFail}, milter.Verdict{Action: milter.TempFail}},
		"discard":          {&filter{end: library.RespDiscard}, milter.Verdict{Action: milter.Discard}},
		"reply 554": {&filter{end: reply("554 5.7.1 Spam\r\n250 ok")}, milter.Verdict{Action: milter.Reject, Code: 554,
			Text: "5.7.1 Spam 250 ok"}},
		"reply 451": {&filter{end: reply("451 4.7.1 Greylisted")}, milter.Verdict{Action: milter.TempFail, Code: 451,
			Text: "4.7.1 Greylisted"}},
		"reply 250": {&filter{end: reply("250 2.0.0 fine")}, milter.Verdict{}},
		"one recipient": {&filter{rcpt: map[string]library.Response{"c@example.net": library.RespReject}},
			milter.Verdict{Refused: []string{"c@example.net"}}},
		"all recipients": {&filter{rcpt: map[string]library.Response{"b@example.net": library.RespReject,
			"c@example.net": library.RespTempFail}},
			milter.Verdict{Action: milter.TempFail}},
		"headers": {&filter{modify: func(m *library.Modifier) error {
			return errors.Join(m.AddHeader("X-Spam-Status", "Yes, score=7.5\r\n\tsymbols"), m.InsertHeader(0, "X-Spamd-Result",
				"default: True"),
				m.AddHeader("Bad name", "x"), m.AddHeader("X-Evil", "a\r\nBcc: x\x01"), m.Quarantine("looks odd"),
				m.DeleteRecipient("b@example.net"),
				m.ReplaceBody([]byte("gone")))
		}}, milter.Verdict{Quarantine: "looks odd", Headers: []milter.Field{{Name: "X-Spam-Status",
			Value: "Yes, score=7.5 symbols"},
			{Name: "X-Spamd-Result", Value: "default: True"}, {Name: "X-Evil", Value: "a Bcc: x"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, err := consult(t, milter.Config{Address: test.f.start(t, "tcp"), FailClosed: true}, message(raw))
			if diff := cmp.Diff(test.want, v); diff != "" || err != nil {
				t.Errorf("%v %s", err, diff)
			}
		})
	}
}

func TestFilterThatFails(t *testing.T) {
	t.Parallel()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "inet:" + closed.Addr().String()
	closed.Close()

	rude, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rude.Close() })
	go func() {
		for {
			conn, err := rude.Accept()
			if err != nil {
				return
			}
			conn.Write([]byte("220 this is an SMTP server\r\n"))
			conn.Close()
		}
	}()

	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	hanging := &filter{hang: hang}

	for name, address := range map[string]string{
		"not there": nobody, "no milter": "inet:" + rude.Addr().String(), "no socket": "unix:/nonexistent/socket",
		"hangs": hanging.start(t, "tcp"),
	} {
		for _, closed := range []bool{false, true} {
			v, err := consult(t, milter.Config{Address: address, FailClosed: closed, Timeout: time.Second}, message(raw))
			want := milter.Accept
			if closed {
				want = milter.TempFail
			}
			if err == nil || v.Action != want || closed && v.Code != 451 {
				t.Errorf("%s: %+v, %v", name, v, err)
			}
			if name == "hangs" && !strings.Contains(err.Error(), "no answer within 1s") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestCancelled(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	f := &filter{hang: hang}
	client, err := milter.New(milter.Config{Address: f.start(t, "tcp")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := client.Consult(ctx, message(raw)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestBodies(t *testing.T) {
	t.Parallel()
	for name, raw := range map[string]string{
		"nothing":        "",
		"only header":    "A: b",
		"no body":        "A: b\r\n\r\n",
		"large":          "A: b\n\n" + strings.Repeat("x", 1<<20),
		"exactly chunks": "A: b\n\n" + strings.Repeat("x", 2*65535),
		"long line":      "A: " + strings.Repeat("x", 300_000) + "\r\n\r\nbody",
		"many folds":     "A: b" + strings.Repeat("\r\n c", 50_000) + "\r\nB: c\r\n\r\nbody",
	} {
		f := new(filter)
		if _, err := consult(t, milter.Config{Address: f.start(t, "tcp")}, message(raw)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		_, body, _ := bytes.Cut(bytes.ReplaceAll([]byte(raw), []byte("\r\n"), []byte("\n")), []byte("\n\n"))
		if f.size != len(body) {
			t.Errorf("%s: %d bytes of the body, want %d", name, f.size, len(body))
		}
		for _, told := range f.told {
			if len(told) > 70_000 {
				t.Errorf("%s: a field of %d bytes", name, len(told))
			}
		}
	}
}

// failing is a message for which every read fails.
type failing struct{}

func (failing) ReadAt([]byte, int64) (int, error) { return 0, errors.New("disk on fire") }

func TestMessageThatCannotBeRead(t *testing.T) {
	t.Parallel()
	m := message(raw)
	m.Raw = failing{}
	v, err := consult(t, milter.Config{Address: new(filter).start(t, "tcp"), FailClosed: true}, m)
	if v.Action != milter.TempFail || err == nil || !strings.Contains(err.Error(), "disk on fire") {
		t.Errorf("%+v, %v", v, err)
	}
}

// If a filter closes the connection at any step, Consult treats that as a failure of the filter, not as a decision.
func TestFilterThatHangsUp(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"connect", "helo", "mail", "rcpt", "header", "headers", "body", "end"} {
		f := &filter{quit: step}
		v, err := consult(t, milter.Config{Address: f.start(t, "tcp"), FailClosed: true}, message(raw))
		if err == nil || v.Action != milter.TempFail || v.Code != 451 {
			t.Errorf("at %s: %+v, %v", step, v, err)
		}
	}
}

// failingFrom is a message in which every read after a given offset fails.
type failingFrom struct {
	io.ReaderAt
	from int64
}

func (f failingFrom) ReadAt(p []byte, off int64) (int, error) {
	if n := f.from - off; n < int64(len(p)) {
		got, _ := f.ReaderAt.ReadAt(p[:max(n, 0)], off)
		return got, errors.New("disk on fire")
	}
	return f.ReaderAt.ReadAt(p, off)
}

func TestMessageThatCannotBeReadToItsEnd(t *testing.T) {
	t.Parallel()
	raw := "A: b\r\nB: " + strings.Repeat("c", 10_000) + "\r\n\r\n" + strings.Repeat("d", 10_000)
	for _, from := range []int64{2, 7, 5_000, 10_012, 15_000} {
		m := message(raw)
		m.Raw = failingFrom{strings.NewReader(raw), from}
		v, err := consult(t, milter.Config{Address: new(filter).start(t, "tcp"), FailClosed: true}, m)
		if v.Action != milter.TempFail || err == nil || !strings.Contains(err.Error(), "disk on fire") {
			t.Errorf("from byte %d on: %+v, %v", from, v, err)
		}
	}
}

// Consult does not send data that follows the message in the file.
func TestMessageEndsAtItsSize(t *testing.T) {
	t.Parallel()
	f := new(filter)
	m := message(raw)
	m.Raw = strings.NewReader(raw + strings.Repeat("more", 100_000))
	if _, err := consult(t, milter.Config{Address: f.start(t, "tcp")}, m); err != nil ||
		f.size != len("Hello\r\nX-Body: no\r\n") {
		t.Errorf("body of %d bytes, %v", f.size, err)
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"unix:/run/rspamd.sock": "unix /run/rspamd.sock", "inet:127.0.0.1:11332": "tcp 127.0.0.1:11332",
		"inet:[::1]:11332": "tcp [::1]:11332", "inet:rspamd.example:1": "tcp rspamd.example:1",
		"unix:relative": "", "inet::11332": "", "inet:host": "", "inet:host:smtp": "", "inet:host:0": "", "127.0.0.1:1": "",
		"": "",
	} {
		network, address, err := milter.ParseAddress(in)
		if got := strings.TrimSpace(network + " " + address); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
}

func FuzzFields(f *testing.F) {
	f.Add([]byte(raw))
	f.Add([]byte("\x00\r\n \r\n\r\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		fields, body, err := milter.Fields(bytes.NewReader(raw), int64(len(raw)))
		if err != nil || body > int64(len(raw)) {
			t.Fatalf("body at %d of %d, %v", body, len(raw), err)
		}
		for _, field := range fields {
			if field.Name == "" || strings.ContainsAny(field.Name+field.Value, "\x00\r") {
				t.Errorf("%q", field)
			}
		}
	})
}
