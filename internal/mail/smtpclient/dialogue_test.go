package smtpclient_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/mail/dane"
	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/mail/smtptest"
)

// dialogue is a testdata file that contains an SMTP session, with the results expected from the client.
type dialogue struct {
	file  string
	mode  smtpclient.TLSMode
	short bool   // whether to use very short timeouts
	user  string // if set, the client authenticates as this user
	dial  string // the error expected from Dial, in the format that check uses
	sends []send
	after bool // whether the connection is usable at the end
}

// send is one message and its expected result: the replies, in the format that codes returns, and the error.
type send struct {
	env  smtpclient.Envelope
	msg  string
	want string
	err  string
}

const (
	plain         = smtpclient.TLSNone
	opportunistic = smtpclient.TLSOpportunistic
	required      = smtpclient.TLSRequired
	encrypted     = smtpclient.TLSEncrypted
	byDANE        = smtpclient.TLSDANE // with a TLSA record that matches no certificate of a Player
)

// one returns a send for a message with the usual envelope.
func one(want, err string) []send { return []send{{want: want, err: err}} }

func then(first []send, want, err string) []send { return append(first, send{want: want, err: err}) }

var dialogues = []dialogue{
	// The envelope.
	{file: "pipelined", after: true, sends: then(one("250 [250 251] 354 250", ""), "250 [250 250] 354 250", "")},
	{file: "stepwise", after: true, sends: one("250 [250 550] 354 250", "")},
	{file: "stepwise-mail-refused", after: true, sends: then(one("550 [0 0] 0 0", ""), "451 [0 0] 0 0", "")},
	{file: "stepwise-all-refused", after: true, sends: then(one("250 [550 450] 0 0", ""), "250 [250 250] 354 250", "")},
	{file: "partial", after: true, sends: one("250 [550 250] 354 250", "")},
	{file: "lone-dot", after: true, sends: then(one("250 [550 550] 354 0", ""), "250 [250 250] 354 250", "")},
	{file: "lone-dot-accepted", after: true, sends: one("250 [550 550] 354 0", "")},
	{file: "lone-dot-mail-refused", after: true, sends: one("550 [503 503] 354 0", "")},
	{file: "contradiction", sends: one("550 [250 550] 354 0", "")},
	{file: "data-refused", after: true, sends: then(one("250 [250 250] 451 0", ""), "250 [250 250] 354 250", "")},
	{file: "data-250", sends: one("250 [250 250] 0 0", "data temporary 250: protocol error")},
	{file: "data-350", sends: one("250 [250 250] 0 0", "data temporary 350: protocol error")},
	{file: "mail-354", sends: one("0 [0 0] 0 0", "mail temporary 354: protocol error")},
	{file: "mail-refused", after: true, sends: then(one("550 [503 503] 503 0", ""), "250 [250 250] 354 250", "")},
	{file: "mail-refused-drop", sends: one("554 [0 0] 0 0", "")},
	{file: "mail-421", sends: one("421 [0 0] 0 0", "")},
	{file: "rcpt-421-drop", sends: one("250 [250 421] 421 0", "")},
	{file: "rcpt-all-refused-drop", sends: one("250 [550 550] 0 0", "")},
	{file: "rcpt-drop", sends: one("250 [550 0] 0 0", "rcpt temporary: EOF")},
	{file: "mail-stall", short: true, sends: one("0 [0 0] 0 0", "mail temporary: timeout")},
	{file: "mail-drop", sends: one("0 [0 0] 0 0", "mail temporary: EOF")},
	{file: "rcpt-garbage", sends: one("250 [0 0] 0 0", "rcpt temporary: protocol error")},
	{file: "rcpt-999", sends: one("250 [0 0] 0 0", "rcpt temporary: protocol error")},
	{file: "rcpt-150", sends: one("250 [0 0] 0 0", "rcpt temporary: protocol error")},
	{file: "rcpt-long-line", sends: one("250 [0 0] 0 0", "rcpt temporary: endless")},
	{file: "rcpt-mixed-codes", sends: one("250 [0 0] 0 0", "rcpt temporary: protocol error")},

	// The message.
	{file: "final-refused", after: true, sends: then(one("250 [250 250] 354 550", ""), "250 [250 250] 354 250", "")},
	{file: "final-421", sends: one("250 [250 250] 354 421", "")},
	{file: "final-drop", sends: one("250 [250 250] 354 0", "final temporary sent: EOF")},
	{file: "final-reset", sends: one("250 [250 250] 354 0", "final temporary sent: reset")},
	{file: "final-stall", short: true, sends: one("250 [250 250] 354 0", "final temporary sent: timeout")},
	{file: "final-garbage", sends: one("250 [250 250] 354 0", "final temporary sent: protocol error")},
	{file: "final-354", sends: one("250 [250 250] 354 0", "final temporary sent 354: protocol error")},
	{file: "final-endless", sends: one("250 [250 250] 354 0", "final temporary sent: endless")},
	{file: "final-unsolicited", sends: one("250 [250 250] 354 250", "")},
	{file: "body-drop", sends: []send{{msg: huge, want: "250 [250 250] 354 0", err: "body temporary: reset"}}},
	{file: "body-stall", short: true, sends: []send{{msg: huge, want: "250 [250 250] 354 0",
		err: "body temporary: timeout"}}},
	{file: "body-refused", sends: []send{{msg: huge, want: "250 [250 250] 354 552"}}},

	// In these sessions, a second message is sent on the same connection.
	{file: "kept-drop", sends: then(one("250 [250 250] 354 250", ""), "0 [0 0] 0 0", "mail temporary stale: hung up")},
	{file: "kept-421", sends: then(one("250 [250 250] 354 250", ""), "0 [0 0] 0 0", "mail temporary stale 421")},
	{file: "kept-reset-refused", sends: then(one("250 [250 250] 354 451", ""), "0 [0 0] 0 0",
		"mail temporary stale 421: protocol error")},

	// The opening.
	{file: "greeting-554", dial: "greeting 554"},
	{file: "greeting-421", dial: "greeting temporary 421"},
	{file: "greeting-drop", dial: "greeting temporary: EOF"},
	{file: "greeting-stall", short: true, dial: "greeting temporary: timeout"},
	{file: "greeting-garbage", dial: "greeting temporary: protocol error"},
	{file: "greeting-endless", dial: "greeting temporary: endless"},
	{file: "greeting-endless-line", dial: "greeting temporary: endless"},
	{file: "greeting-multiline", after: true},
	{file: "ehlo-helo", after: true, sends: one("250 [250 250] 354 250", "")},
	{file: "helo-refused", dial: "hello 550"},
	{file: "ehlo-451", dial: "hello temporary 451"},
	{file: "ehlo-drop", dial: "hello temporary: EOF"},
	{file: "ehlo-stall", short: true, dial: "hello temporary: timeout"},

	// TLS.
	{file: "starttls", mode: required, after: true, sends: one("250 [250 250] 354 250", "")},
	{file: "starttls", mode: opportunistic, after: true, sends: one("250 [250 250] 354 250", "")},
	{file: "starttls-454", mode: required, dial: "tls temporary 454"},
	{file: "starttls-454-plain", mode: opportunistic, after: true, sends: one("250 [250 250] 354 250", "")},
	{file: "starttls-garbage", mode: required, dial: "tls temporary: handshake"},
	{file: "starttls-garbage", mode: opportunistic, dial: "tls temporary plain: handshake"},
	{file: "starttls-injected", mode: required, dial: "tls temporary: protocol error"},
	{file: "starttls-injected", mode: opportunistic, dial: "tls temporary: protocol error"},
	{file: "starttls-drop", mode: opportunistic, dial: "tls temporary plain: hung up"},
	{file: "starttls-stall", mode: opportunistic, short: true, dial: "tls temporary plain: timeout"},
	{file: "starttls-expired", mode: required, dial: "tls temporary: handshake"},
	{file: "starttls-expired-taken", mode: opportunistic, after: true},
	{file: "starttls-then-drop", mode: opportunistic, dial: "hello temporary plain: EOF"},
	{file: "starttls-then-drop", mode: required, dial: "hello temporary: EOF"},
	{file: "no-starttls", mode: required, dial: "tls temporary: no TLS"},
	{file: "no-starttls", mode: opportunistic, after: true},
	{file: "no-starttls", mode: plain, after: true},

	// TLS that nothing may replace by plain text.
	{file: "starttls", mode: encrypted, after: true, sends: one("250 [250 250] 354 250", "")},
	{file: "starttls-expired-taken", mode: encrypted, after: true},
	{file: "no-starttls", mode: encrypted, dial: "tls temporary: no TLS"},
	{file: "no-starttls", mode: byDANE, dial: "tls temporary: no TLS"},
	{file: "starttls-454", mode: encrypted, dial: "tls temporary 454"},
	{file: "starttls-454", mode: byDANE, dial: "tls temporary 454"},
	{file: "starttls-garbage", mode: encrypted, dial: "tls temporary: handshake"},
	{file: "starttls-garbage", mode: byDANE, dial: "tls temporary: handshake"},
	{file: "starttls-injected", mode: encrypted, dial: "tls temporary: protocol error"},
	{file: "starttls-injected", mode: byDANE, dial: "tls temporary: protocol error"},
	{file: "starttls-drop", mode: encrypted, dial: "tls temporary: hung up"},
	{file: "starttls-drop", mode: byDANE, dial: "tls temporary: hung up"},
	{file: "starttls-stall", mode: encrypted, short: true, dial: "tls temporary: timeout"},
	{file: "starttls-stall", mode: byDANE, short: true, dial: "tls temporary: timeout"},
	{file: "starttls-then-drop", mode: encrypted, dial: "hello temporary: EOF"},
	{file: "starttls-expired", mode: byDANE, dial: "tls temporary: handshake"},

	// Authentication.
	{file: "auth-plain", user: "user", after: true},
	{file: "auth-plain-challenge", user: "user", after: true},
	{file: "auth-login", user: "user", after: true},
	{file: "auth-refused", user: "user", dial: "auth 535"},
	{file: "auth-454", user: "user", dial: "auth temporary 454"},
	{file: "auth-none", user: "user", dial: "auth: no authentication"},
	{file: "auth-drop", user: "user", dial: "auth temporary: EOF"},
	{file: "auth-login-early", user: "user", dial: "auth 504"},

	// In these sessions, the host offers extensions, or the client creates replies itself.
	{file: "parameters", after: true, sends: []send{{msg: "Subject: 8\r\n\r\nGrüße\r\n.dot\r\n",
		want: "250 [250 250] 354 250"}}},
	{file: "smtputf8", after: true, sends: []send{{
		env: smtpclient.Envelope{From: "jörg@client.example", To: []string{"δ@mx.test", "c@mx.test"}},
		msg: "A: b\r\n\r\nc", want: "250 [250 250] 354 250",
	}}},
	{file: "null-sender", after: true, sends: []send{{
		env: smtpclient.Envelope{To: []string{"b@mx.test"}}, want: "250 [250] 354 250",
	}}},
	{file: "local-rcpt", after: true, sends: []send{{
		env: smtpclient.Envelope{From: "a@client.example", To: []string{
			"δ@mx.test", "c@mx.test", "x@mx.test>\r\nRCPT TO:<evil@mx.test", "", "a b@mx.test", strings.Repeat("x", 600),
		}},
		want: "250 [550l 250 553l 553l 553l 553l] 354 250",
	}}},
	{file: "opening", after: true, sends: []send{
		{env: smtpclient.Envelope{From: "a@client.example", To: []string{"δ@mx.test"}}, want: "250l [550l] 0 0"},
		{env: smtpclient.Envelope{From: "jörg@client.example", To: []string{"b@mx.test"}}, want: "550l [0] 0 0"},
		{env: smtpclient.Envelope{From: "a@client.example", To: []string{"b@mx.test"}, UTF8: true}, want: "550l [0] 0 0"},
		{env: smtpclient.Envelope{From: "a@b\nRSET", To: []string{"b@mx.test"}}, want: "553l [0] 0 0"},
		{
			env: smtpclient.Envelope{From: "a@client.example", To: []string{"b@mx.test"}, Require8Bit: true},
			msg: "A: b\r\n\r\nGrüße\r\n", want: "554l [0] 0 0",
		},
		{env: smtpclient.Envelope{From: "a@client.example"}, want: "0 [] 0 0", err: "rcpt: without recipients"},
	}},
	// The host announces limits.
	{file: "size-exceeded", after: true, sends: []send{{msg: strings.Repeat("x", 99), want: "552l [0 0] 0 0"},
		{want: "250 [250 250] 354 250"}}},
	{file: "limits-rcpt", after: true, sends: []send{
		{env: smtpclient.Envelope{From: "a@client.example", To: []string{"b@mx.test", "", "c@mx.test", "d@mx.test"}},
			want: "250 [250 553l 550 452l] 354 250"},
		{env: smtpclient.Envelope{From: "a@client.example", To: []string{"d@mx.test"}}, want: "250 [250] 354 250"},
	}},
	{file: "limits-domain", after: true, sends: []send{{env: smtpclient.Envelope{From: "a@client.example",
		To: []string{"b@mx.test", "c@other.test", "d@MX.test"}}, want: "250 [250 452l 250] 354 250"}}},
	{file: "limits-mail", sends: then(then(one("250 [250 250] 354 250", ""), "550 [503 503] 503 0", ""),
		"0 [0 0] 0 0", "mail temporary stale: hung up")},
	{file: "limits-tls", mode: required, after: true, sends: one("250 [250 452l] 354 250", "")},
	{file: "opening-small", after: true, sends: []send{{msg: strings.Repeat("x", 99), want: "552l [0 0] 0 0"}}},
}

var huge = strings.Repeat(strings.Repeat("x", 76)+"\r\n", 400_000)

func TestDialogues(t *testing.T) {
	t.Parallel()
	for _, d := range dialogues {
		t.Run(fmt.Sprintf("%s/%d", d.file, d.mode), func(t *testing.T) {
			t.Parallel()
			d.run(t)
		})
	}
}

// TestEveryDialogueIsPlayed fails if any testdata file is not used by a test.
func TestEveryDialogueIsPlayed(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.smtp")
	if err != nil {
		t.Fatal(err)
	}
	played := map[string]bool{"reset": true} // TestReset replays this file
	for _, d := range dialogues {
		played[d.file] = true
	}
	for _, file := range files {
		if name := strings.TrimSuffix(filepath.Base(file), ".smtp"); !played[name] {
			t.Errorf("no test plays %s", file)
		}
	}
}

func (d dialogue) run(t *testing.T) {
	host := smtptest.ScriptFile(t, d.file)
	o := smtpclient.Options{Hello: "client.example", TLS: d.mode, RootCAs: host.CA.Pool()}
	if d.mode == byDANE {
		o.DANE = dane.Parse([]dane.Record{{Usage: dane.UsageEE, Selector: dane.SelectorKey, Matching: dane.MatchingSHA256,
			Data: make([]byte, 32)}})
	}
	if d.short {
		const at = time.Second
		o.Timeouts = smtpclient.Timeouts{Connect: at, TLS: at, Greeting: at, Command: at, Data: at, Final: at}
	}
	if d.user != "" {
		o.Username, o.Password = d.user, "secret"
	}
	c, err := smtpclient.Dial(t.Context(), host.Addr, o)
	check(t, "Dial", err, d.dial)
	if err != nil {
		e, _ := errors.AsType[*smtpclient.Error](err)
		if e == nil || !strings.Contains(e.Transcript, "connected to") {
			t.Errorf("the error has no transcript: %v", err)
		}
		return
	}
	defer c.Close()
	for i, s := range d.sends {
		if s.env.To == nil && s.env.From == "" {
			s.env = smtpclient.Envelope{From: "a@client.example", To: []string{"b@mx.test", "c@mx.test"}}
		}
		if s.msg == "" {
			s.msg = "Subject: hello\r\n\r\nhello\r\n"
		}
		res, err := c.Send(t.Context(), s.env, []byte(s.msg))
		check(t, fmt.Sprintf("Send %d", i+1), err, s.err)
		if diff := cmp.Diff(s.want, codes(res, s.env)); diff != "" {
			t.Errorf("replies to message %d (-want +got):\n%s\n%s", i+1, diff, c.Transcript())
		}
	}
	if c.Usable() != d.after {
		t.Errorf("Usable() = %v\n%s", c.Usable(), c.Transcript())
	}
	if strings.Contains(c.Transcript(), "secret") || strings.Contains(c.Transcript(), "c2VjcmV0") {
		t.Errorf("the transcript has the password:\n%s", c.Transcript())
	}
}

// codes returns a result in short form; the letter l marks a reply that the client created.
func codes(r smtpclient.Result, env smtpclient.Envelope) string {
	tell := func(r smtpclient.Reply) string {
		if r.Local {
			return fmt.Sprintf("%dl", r.Code)
		}
		return fmt.Sprint(r.Code)
	}
	rcpts := make([]string, len(env.To))
	for i := range env.To {
		rcpts[i] = tell(r.Rcpt[i])
	}
	return fmt.Sprintf("%s [%s] %s %s", tell(r.Mail), strings.Join(rcpts, " "), tell(r.Data), tell(r.Final))
}

// check compares an error with its description, "stage [temporary] [sent] [stale] [plain] [code][: cause]".
func check(t *testing.T, what string, err error, want string) {
	t.Helper()
	got := ""
	if err != nil {
		e, ok := errors.AsType[*smtpclient.Error](err)
		if !ok {
			t.Errorf("%s: %T is no *Error: %v", what, err, err)
			return
		}
		got = tell(e)
	}
	if got != want {
		t.Errorf("%s: error %q, want %q (%v)", what, got, want, err)
	}
}

func tell(e *smtpclient.Error) string {
	s := string(e.Stage)
	for _, flag := range []struct {
		on   bool
		name string
	}{{e.Temporary, " temporary"}, {e.Sent, " sent"}, {e.Stale, " stale"}, {e.RetryPlain, " plain"}} {
		if flag.on {
			s += flag.name
		}
	}
	if e.Reply != nil {
		s += fmt.Sprintf(" %d", e.Reply.Code)
	}
	if e.Err == nil {
		return s
	}
	text := e.Err.Error()
	switch {
	case errors.Is(e.Err, os.ErrDeadlineExceeded) || strings.Contains(text, "deadline"):
		return s + ": timeout"
	case errors.Is(e.Err, smtpclient.ErrProtocol):
		return s + ": protocol error"
	case errors.Is(e.Err, smtpclient.ErrEndless):
		return s + ": endless"
	case errors.Is(e.Err, smtpclient.ErrNoTLS):
		return s + ": no TLS"
	case errors.Is(e.Err, smtpclient.ErrNoAuth):
		return s + ": no authentication"
	}
	eof := strings.Contains(text, "EOF")
	reset := strings.Contains(text, "reset by peer") || strings.Contains(text, "broken pipe")
	switch {
	// A host that hangs up instead of TLS may have received the first bytes of TLS. Then its kernel sends a reset.
	case e.Stale || e.Stage == smtpclient.StageTLS && (eof || reset):
		return s + ": hung up"
	case eof:
		return s + ": EOF"
	case reset:
		return s + ": reset"
	case strings.Contains(text, "handshake"):
		return s + ": handshake"
	case strings.Contains(text, "without recipients"):
		return s + ": without recipients"
	}
	return s + ": " + text
}
