package smtpsink_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/mail/smtpsink"
)

type message struct {
	From string
	To   []string
	Data string
}

// talk sends input in one write and returns the sink's replies until the sink closes the connection.
func talk(t *testing.T, addr, input string) string {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(10 * time.Second))
	go io.WriteString(nc, input)
	answer, err := io.ReadAll(nc)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

func TestSink(t *testing.T) {
	t.Parallel()
	const open, closed = "220 sink ESMTP\r\n", "221 bye\r\n"
	for _, test := range []struct {
		name, input, want string
		messages          []message
	}{
		{name: "quit", input: "QUIT\r\n", want: open + closed},
		{
			name: "all at once", input: "EHLO a\r\nMAIL FROM:<a@b> SIZE=3\r\nRCPT TO:<c@d>\r\nRCPT " +
				"TO:<e@f>\r\nDATA\r\nx\r\n..\r\n.y\r\n.\r\nMAIL FROM:<>\r\nRCPT TO:<\"a>b\"@d>\r\nDATA\r\n.\r\nQUIT\r\n",
			want: open + "250-sink\r\n250-PIPELINING\r\n250-8BITMIME\r\n250 SIZE 104857600\r\n250 ok\r\n250 ok\r\n250 " +
				"ok\r\n354 go on\r\n250 ok\r\n250 ok\r\n250 ok\r\n354 go on\r\n250 ok\r\n" + closed,
			messages: []message{
				{From: "a@b", To: []string{"c@d", "e@f"}, Data: "x\r\n.\r\ny\r\n"},
				{To: []string{`"a>b"@d`}},
			},
		},
		{
			name: "out of order", input: "helo a\r\nrcpt to:<a@b>\r\ndata\r\nmail from:<a@b>\r\ndata\r\nrset\r\nrcpt " +
				"to:<a@b>\r\nvrfy a\r\nx\r\nnoop\r\nquit\r\n",
			want: open + "250 ok\r\n503 no\r\n554 no recipients\r\n250 ok\r\n554 no recipients\r\n250 ok\r\n503 no\r\n502 " +
				"no\r\n502 no\r\n250 ok\r\n" + closed,
		},
		{
			name: "a line longer than the buffer", input: "MAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nDATA\r\n" +
				strings.Repeat("x", 200_000) + "\r\n.\r\nQUIT\r\n",
			want:     open + "250 ok\r\n250 ok\r\n354 go on\r\n250 ok\r\n" + closed,
			messages: []message{{From: "a@b", To: []string{"c@d"}, Data: strings.Repeat("x", 200_000) + "\r\n"}},
		},
		{
			name: "only CRLF ends a message", input: "MAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nDATA\r\nx\n.\ny\r\n.\r\nQUIT\r\n",
			want:     open + "250 ok\r\n250 ok\r\n354 go on\r\n250 ok\r\n" + closed,
			messages: []message{{From: "a@b", To: []string{"c@d"}, Data: "x\n\ny\r\n"}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var got []message
			sink, err := smtpsink.Config{Latency: time.Millisecond, OnMessage: func(from string, to []string, data []byte) {
				mu.Lock()
				defer mu.Unlock()
				got = append(got, message{from, to, string(data)})
			}}.Start("127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, talk(t, sink.Addr(), test.input)); diff != "" {
				t.Errorf("answers (-want +got):\n%s", diff)
			}
			if err := sink.Close(); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(test.messages, got); diff != "" {
				t.Errorf("messages (-want +got):\n%s", diff)
			}
			if sink.Count() != int64(len(test.messages)) || sink.Connections() != 1 {
				t.Errorf("counted %d messages, %d connections", sink.Count(), sink.Connections())
			}
		})
	}
}

// TestCloseCutsConnections closes a sink in the middle of a message. The sink must not count that message.
func TestCloseCutsConnections(t *testing.T) {
	t.Parallel()
	sink, err := smtpsink.Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nc, err := net.Dial("tcp", sink.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	io.WriteString(nc, "MAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nDATA\r\nhalf a mess")
	r := bufio.NewReader(nc)
	for line := ""; !strings.HasPrefix(line, "354"); {
		if line, err = r.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	if err := sink.Close(); err != nil {
		t.Error(err)
	}
	if rest, _ := io.ReadAll(r); len(rest) > 0 || sink.Count() != 0 {
		t.Errorf("answered %q, counted %d", rest, sink.Count())
	}
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	if _, err := smtpsink.Start("127.0.0.1:nowhere"); err == nil {
		t.Error("Start listens nowhere")
	}
}

// BenchmarkSink measures the sink, using a sender that does as little work as possible.
func BenchmarkSink(b *testing.B) {
	sink, err := smtpsink.Start("127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer sink.Close()
	nc, err := net.Dial("tcp", sink.Addr())
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	message := append(bytes.Repeat([]byte(strings.Repeat("x", 76)+"\r\n"), 131), ".\r\n"...)
	r := bufio.NewReader(nc)
	skip := func(lines int) {
		for range lines {
			if _, err := r.ReadSlice('\n'); err != nil {
				b.Fatal(err)
			}
		}
	}
	skip(1)
	b.ReportAllocs()
	for b.Loop() {
		io.WriteString(nc, "MAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nDATA\r\n")
		skip(3)
		nc.Write(message)
		skip(1)
	}
}
