package linear

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/mail/authres"
	"github.com/postrider/postrider/internal/mail/dkim"
	"github.com/postrider/postrider/internal/mail/dmarcrpt"
	"github.com/postrider/postrider/internal/mail/htmltext"
	"github.com/postrider/postrider/internal/mail/mailparse"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/mail/report"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtpserver"
	"github.com/postrider/postrider/internal/sending/render"
)

// hostile is a parser with its hostile inputs. Each hostile input consists of the head and copies of one string.
type hostile struct {
	name   string
	parse  func(string)
	head   string
	inputs []string
}

const (
	head  = "From: a@b.example\r\nSubject: x\r\n"
	mixed = head + "Content-Type: multipart/mixed; boundary=b\r\n\r\n"
	part  = mixed + "--b\r\n"
	dsn   = head + "Content-Type: multipart/report; report-type=delivery-status; boundary=b\r\n\r\n--b\r\n"
	arf   = head + "Content-Type: multipart/report; report-type=feedback-report; boundary=b\r\n\r\n--b\r\n"
	prose = "From: mailer-daemon@b.example\r\nReturn-Path: <>\r\nSubject: Undelivered mail\r\n\r\nDelivery failed:\r\n"
)

// marks are tokens from the grammars of header fields.
var marks = []string{" ", "\t", "\r\n ", "\n\t", "a", ",", ";", ":", "@", ".", "<", ">", "(", ")", "\"", "\\", "\"\\",
	"[", "=", "'", "*", "%", "/", "?", "-", "\x00",
	"\xff", "é", "<<", "()", "((", "\"\"", "a b ", "<>", "<a@b>", "<a@b> ", "<a@b>,", "a@b.c,", "a@b.c ", "a:", "a:;",
	"(,", "<(", "\"a@b", "a <", "a, ", "a,b <c@d>",
	"=?", "=?=", "=?a?q?", "=?a?b?x", "=?utf-8?Q?=C3?= ", "=?utf-8?Q?=C3?=", "=?utf-8?B?w?= ",
	"=?gb18030?B?gTCB?= ", "=?a?q??", "=?koi8-r?Q?\xf0?= ", "=?koi8-r?Q?\xf0?=",
	"=?utf-7?Q?+APw?= ", "=?utf-7?Q?+2D0-+A-?=", "=?cp-850?Q?=81?= =?850?Q?=81?= ", "a=b;", "a=\"b\";", ";a*0=b",
	";name*=''%", ";a*1*=%41",
	";filename*9=b", "a=b ", ";a=(", "; \"", "; =", "1", "1.", "5.1.1 ", "Mon, ", "+0000 ", "(a) ",
	// The following strings are about as long as the longest mailbox that is parsed.
	strings.Repeat("<", 4000) + ",", strings.Repeat("(", 4000) + ",", strings.Repeat("a@b ", 1000) + ",",
	strings.Repeat("\"", 4000) + ",",
	strings.Repeat("<a@b ", 800) + ",", strings.Repeat("=?a?q?a?= ", 400) + ","}

// lines are typical lines of message bodies and reports.
var lines = []string{"\r\n", "\n", "\r", " \r\n", "a\r\n", "a: b\r\n", "A:\n", "a\r\n ", "--\r\n", "--b\r\n",
	"--b--\r\n", "--b\n\n", "--b\nContent-Type: a/b\n\n",
	"--b\nContent-Type: multipart/mixed; boundary=b\n\n", "--b\nContent-Type: multipart/mixed; boundary=c\n\n--c\n",
	"--b\nContent-Type: multipart/mixed\n\n-- \n",
	"--b\nContent-Type: multipart/alternative; boundary=b\n\n--b\nContent-Type: text/html\n\n<!----!>\n",
	"--b\nContent-Type: message/rfc822\n\nSubject: x\n\n",
	"--b\nContent-Type: multipart/digest; boundary=d\n\n--d\n\n", "--b\nContent-Type: text/plain; charset=utf-16\n\na\n",
	"--b\nContent-Transfer-Encoding: base64\n\nQUJD=\n",
	"--b\nContent-Type: text/plain" + strings.Repeat("; x=y", 50) + "\n\n", "--", "\n--", "From \n", ">From a\n",
	"nothing\n", "=\n", "=41", "=", "=\r\n", "QUJD\n", "QQ==\n", "AA=!", "begin 644 a\nM\n",
	"begin 644 a\n", "begin 644 a\n#0V%T\n", "begin 644 a\nM" + strings.Repeat("0V%T", 15) + "\n`\nend\n",
	"#0V%T\n", "M\n", "`\n", "end\n", " a\r\n", " a\r\nb: c\r\n", "\ta\r\n\r\n",
	"Final-Recipient: rfc822; a@b.example\nAction: failed\nStatus: 5.1.1\n\n", "Diagnostic-Code: smtp; 550 ",
	"Action: failed\n", "Original-Recipient: rfc822;", "<a@b.example>: 550 5.1.1 no\n", "<a@b.example>\n",
	"a@b.example\n", "550 ", "550 5.1.1 ", "5.1.1", "> a\n", "could not be delivered to a@b.example\n",
	"----- Original message -----\n", "Message-ID: <a@b>\n", "Reported-Domain: a\nOriginal-Rcpt-To: a@b.example\n",
	"Feedback-Type: abuse\n", "Return-Path: <b-a@b.example>\n", "Subject: failure\n\n", "user unknown ", "<!----!>", "<p>",
	"\x00", "\xff", "a "}

func parsers() []hostile {
	var all []hostile
	add := func(name string, parse func(string), head string, inputs ...string) {
		all = append(all, hostile{name, parse, head, inputs})
	}
	htmlParsers(add)
	messageParsers(add)
	add("address", func(s string) { message.ParseAddress(s) }, "", marks...)
	add("field", func(s string) { message.CheckField("X-A", s) }, "", marks...)
	add("file name", func(s string) { message.RefusedExtension(s) }, "a.", append(marks, ". ", ":", "/.")...)
	add("subject of a refusal", func(s string) { report.Classify(550, "", s) }, "", lines...)
	add("refusal", func(s string) { report.Recipient{Action: report.Failed, Diagnostic: s}.Class() }, "", lines...)
	for _, h := range []struct{ name, head string }{
		{"bounce", dsn + "Content-Type: message/delivery-status\r\n\r\n"}, {"text of a bounce", dsn + "\r\n"},
		{"prose", prose},
		{"HTML of a bounce", dsn + "Content-Type: text/html\r\n\r\n"},
		{"message of a bounce", dsn + "Content-Type: message/rfc822\r\n\r\n"},
		{"complaint", arf + "Content-Type: message/feedback-report\r\n\r\n"}, {"message of a complaint", arf +
			"Content-Type: message/rfc822\r\n\r\n"},
	} {
		add(h.name, func(s string) { report.ReadComplaint([]byte(s)) }, h.head, lines...)
		add(h.name+" that is returned", func(s string) {
			for _, r := range report.ReadReturned([]byte(s), "").About([]string{"a@b.example", "b@b.example",
				"c@d.example"}).Recipients {
				r.Class()
			}
		}, h.head, append(lines, "b@b.example ", "@b.example", "a@b.example b@b.example: 550 no\n\n", "b\n",
			">>> RCPT TO:<b@b.example>\n")...)
	}
	originParsers(add)
	hostParsers(add)
	aggregateParsers(add)
	add("signing", sign(), head+"\r\n", lines...)
	add("signing of a field", sign(), head+"To: ", marks...)
	add("SMTP commands", talk(), "EHLO a\r\n", "NOOP\r\n", "MAIL FROM:<a@b.example>\r\nRSET\r\n", "x\r\n", "\r\n",
		"MAIL FROM:<", "MAIL FROM:<a> A=B C=D\r\n", "a ", "\n", "\x00", "BDAT 0\r\n")
	add("SMTP message", talk(), "EHLO a\r\nMAIL FROM:<>\r\nRCPT TO:<a@b.example>\r\nDATA\r\n", ".\r\n.\r\n", "..\r\n",
		"a\r\n", ".a\r\n", "\r", "\n.", "\r\n.", "a", "\x00")
	add("SMTP message in chunks", talk(), "EHLO a\r\nMAIL FROM:<>\r\nRCPT TO:<a@b.example>\r\n", "BDAT 1\r\na",
		"BDAT 0\r\n", "BDAT 2\r\n\r\n")
	return all
}

func htmlParsers(add func(string, func(string), string, ...string)) {
	hostileHTML(add, "", func(s string) { htmltext.FromHTML(s) })
	track := func(s string) {
		render.CompileHTML(s).Track(nil, func(dst, target []byte) ([]byte, bool) { return append(dst, target...), true }, nil)
		_ = render.Check(s)
	}
	hostileHTML(add, "links of ", track)
	hostileTags(add)
	add("placeholders", track, "", "{{{", "}}}", "{{{a", "{{{a}}}", "{{", "}}", "{{UNSUBSCRIBE_URL}}", "|", "{{{a|", "\n",
		"<a href={{{a}}}>", "<a {{{a}}} href='{{{b|http://e.c/'}}}&'>", "<a href=http://e.c/&amp;{{{a}}}>")
}

func hostileHTML(add func(string, func(string), string, ...string), of string, parse func(string)) {
	add(of+"HTML", parse, "", "<!----!>", "<!--", "<", "<!", "</", "<p ", "&", "&amp", "&#1", "<div>", "<a b c=d e='f' >",
		"<ul><li>a", "<blockquote>a",
		`<a href="https://e.c">b`, "<script>", "<title>", "<textarea>", "<![CDATA[", "<xmp>", "<pre> a \r\n", "<svg>",
		"<style></styl",
		`<p style="display:none">`, "\x00", "\xff", "a ", "  ", "<td>", "<br>", "<?", "</ a", "<x/", "-->", "<p a=\"",
		"<a href=x>", "/", "\u200d", "<a href=http://e.c/&amp;>", "<a href='http://e.c/&copy' b>",
		"<script><!--", "<plaintext>", "<!-->", "--!", `<a href="//`, "<a href=//e.c>/", "<ol start=-1><li>a")
	add(of+"HTML within a script", parse, "<script>", "</scrip", "<!--", "<script", "-", "<!--<script></script>")
	add(of+"HTML within a tag", parse, "<p ", "a", "a=b ", "a='b' ", "a=\"", "=", "/", "a\x00")
	add(of+"HTML within a style", parse, `<p style="`, "display:", "display:none;", ";", "&amp;")
	add(of+"HTML in a hidden element", parse, `<p style="display:none">`, "<p>", "</p>", "<p a=b>", "<script></script>")
	add(of+"HTML in a comment", parse, `<!--`, "-", "--!", "--", "!>", "<!--")
	add(of+"HTML below a large tag", parse, "<p "+strings.Repeat("a=b c d e f ", 600)+">", "<p a>", "<p>", "<script a>",
		"<script></script>")
}

func messageParsers(add func(string, func(string), string, ...string)) {
	parse := func(s string) {
		p := mailparse.Parse([]byte(s))
		p.HTML()
		p.Text()
	}
	add("message", parse, "", lines...)
	add("fields", parse, head, lines...)
	for _, name := range []string{"X", "From", "To", "Reply-To", "Subject", "Date", "Message-ID", "In-Reply-To",
		"References", "Content-Type: a/b; a=b;",
		"Content-Type: multipart/mixed; boundary=\"", "Content-Type", "Content-Disposition: attachment; filename=",
		"Content-ID", "Content-Transfer-Encoding"} {
		if !strings.Contains(name, ":") {
			name += ":"
		}
		add("field "+name, parse, name+" ", marks...)
		if strings.HasPrefix(name, "Content-") {
			add("field "+name+" of a part", parse, part+name+" ", marks...)
		}
	}
	add("body", parse, head+"\r\n", lines...)
	add("parts", parse, mixed, lines...)
	add("part", parse, part+"\r\n", lines...)
	add("alternatives", parse, head+"Content-Type: multipart/alternative; boundary=b\r\n\r\n", lines...)
	add("part of a part", parse, part+"Content-Type: multipart/related; boundary=c\r\n\r\n--c\r\n\r\n--c--\r\n", lines...)
	for _, encoding := range []string{"base64", "quoted-printable", "x-uuencode"} {
		add(encoding, parse, head+"Content-Transfer-Encoding: "+encoding+"\r\n\r\n", lines...)
	}
	for _, h := range []struct{ name, head string }{
		{"uuencoded file", head + "Content-Type: a/b\r\nContent-Transfer-Encoding: x-uuencode\r\n\r\nbegin 644 a\r\n"},
		{"uuencoded file in a text", head + "\r\nbegin 644 a\r\n"},
	} {
		add(h.name, parse, h.head, append(lines, "#0V%T\n`\nend\nbegin 644 a\n", "`\nend\nbegin 644 a\n", "_\n",
			"M"+strings.Repeat("0V%T", 15)+"\n", strings.Repeat("#0V%T\n", 20)+"begin 644 a\n", "begin 644 a", "begin ",
			"\nbegin ")...)
	}
	add("header that begins with folds", parse, " \r\n", append(lines, " ", "\t\n", " a: b\n")...)
	for _, charset := range []string{"utf-8", "utf-16", "utf-7", "iso-2022-jp", "gb18030", "hz-gb-2312", "big5", "euc-kr",
		"x-unknown", "latin1"} {
		add(charset, parse, head+"Content-Type: text/html; charset="+charset+"\r\n\r\n", "a", "\x1b$B", "\x81",
			"\x810", "~{", "+", "+-", "+APw-", "+APw", "+2D0-", "+2D0 ", "+A\xff", "\xff\xfe", "\xd8\x00", "é", "\x00")
	}
	add("field by field", func(s string) { mailparse.ParseHeader([]byte(s)) }, "", lines...)
}

// originParsers adds the parsers that authenticate the origin of a message. These parsers read the message and the DNS
// records of its sender.
func originParsers(add func(string, func(string), string, ...string)) {
	check := func(raw, mailFrom, txt string) {
		dns := resolve.NetForm{Resolver: answers{txt: txt}}
		origin := authres.Origin{Addr: netip.MustParseAddr("192.0.2.1"), Hello: "mx.b.example", MailFrom: mailFrom}
		authres.New("mx.example", dns).Check(context.Background(), origin, strings.NewReader(raw), int64(len(raw)))
	}
	raw := func(s string) { check(s, "a@b.example", "v=spf1 -all") }
	const signature = "DKIM-Signature: v=1; a=ed25519-sha256; c=relaxed/relaxed; d=b.example; s=s; h=from; bh=AAAA; " +
		"b=AAAA\r\n"
	add("authentication of fields", raw, signature+head, append(lines, signature)...)
	add("authentication of a body", raw, signature+head+"\r\n", lines...)
	add("authentication of From", raw, signature+"From: ", marks...)
	add("DKIM signature", raw, "From: a@b.example\r\nDKIM-Signature: v=1; ", append(marks, "h=from:", "a:", "b=A ")...)
	add("DKIM fields", raw, "From: a@b.example\r\nDKIM-Signature: v=1; a=ed25519-sha256; d=b.example; s=s; bh=AAAA; "+
		"b=AAAA; h=", "from:", ":", " : ", "a:\r\n ")
	add("ARC", raw, "From: a@b.example\r\n", "ARC-Seal: i=1; cv=none\r\n", "Authentication-Results: a; spf=pass\r\n")
	add("return path", func(s string) { check(head+"\r\n", s, "v=spf1 exists:%{l1r-}.%{d} -all") }, "", "a", "@", ".", "-",
		"%{l}", "é")
	for _, record := range []string{"v=spf1 ", "v=DMARC1; p=none; ", "v=DKIM1; k=ed25519; p="} {
		add("record "+record, func(s string) { check(signature+head+"\r\n", "a@b.example", s) }, record, "a", " ", ";", "=",
			"a ", "a:b.example ", "include:b.example ",
			"ip4:192.0.2.2 ", "exists:%{l}.b.example ", "%", "%{", "redirect=b.example ", "mx ", "ptr ", "p=reject;",
			"rua=mailto:a@b,", "A", "AAAA", "\x00", "é")
	}
}

// aggregateParsers adds the parser of DMARC aggregate reports.
func aggregateParsers(add func(string, func(string), string, ...string)) {
	read := func(s string) {
		dmarcrpt.Read(strings.NewReader(s), int64(len(s)), func(dmarcrpt.Row) error { return nil })
	}
	add("DMARC report", read, "<feedback>", "<record><row><source_ip>::1</source_ip><count>1</count></row><identifiers>"+
		"<header_from>a.example</header_from></identifiers></record>", "<record>", "<x>", "<x/>", "<a:x a='b' c='d'/>",
		"<!-- -->", "<![CDATA[a]]>", "&amp;", "a", " ", "<a", "</", "<?a ?>", "<!a>", "\xff")
	add("value of a DMARC report", read, "<feedback><report_metadata><report_id>", "a", " a", "<x>", "<x/>", "<!---->",
		"<![CDATA[a]]>", "&#65;", "</report_id><report_id>")
	add("list of a DMARC report", read, "<feedback><record><auth_results>", "<dkim/>", "<spf><domain>a</domain></spf>",
		"<dkim><domain>a</domain><domain>a</domain></dkim>")
}

// answers is a DNS resolver in which every name has exactly one record, a TXT record.
type answers struct {
	resolve.Fake
	txt string
}

func (a answers) TXT(context.Context, string) ([]string, error) { return []string{a.txt}, nil }

func sign() func(string) {
	key := sync.OnceValue(func() *dkim.Key {
		k, err := dkim.GenerateEd25519()
		if err != nil {
			panic(err)
		}
		return k
	})
	return func(s string) {
		dkim.Sign([]byte(strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\n", "\r\n")), time.Unix(0, 0),
			dkim.Signer{Domain: "b.example", Selector: "s", Key: key()})
	}
}

// talk returns a function that sends a string to an SMTP server and closes the connection.
func talk() func(string) {
	const large = 1 << 30
	server := smtpserver.New(smtpserver.Config{MaxSize: large, MaxLine: large, MaxCommands: large, MaxErrors: large,
		MaxRecipients: large}, taker{},
		slog.New(slog.DiscardHandler))
	return func(said string) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		wg.Go(func() { server.Serve(ctx, l) })
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			panic(err)
		}
		defer c.Close()
		wg.Go(func() {
			io.WriteString(c, said)
			c.(*net.TCPConn).CloseWrite()
		})
		io.Copy(io.Discard, c)
	}
}

// taker is an SMTP session that accepts every message.
type taker struct{}

func (taker) Open(context.Context, smtpserver.Peer) (smtpserver.Session, error) { return taker{}, nil }
func (taker) Auth(context.Context, string, string) error                        { return nil }
func (taker) Mail(context.Context, string, smtpserver.MailOptions) error        { return nil }
func (taker) Rcpt(context.Context, string) error                                { return nil }
func (taker) Data(_ context.Context, r io.Reader) (string, error) {
	_, err := io.Copy(io.Discard, r)
	return "", err
}
func (taker) Reset() {}
func (taker) Close() {}

// hostileTags adds the parser for HTML tags.
func hostileTags(add func(string, func(string), string, ...string)) {
	tags := func(s string) {
		for t := range htmltext.Tokens(s) {
			for range t.Attributes() {
			}
		}
	}
	add("HTML tags", tags, "", "<!--", "<", "</", "<p ", "<a b c=d e='f' >", "<a b b b>", "<script>", "<title>", "<x/",
		"<p a=\"", "<plaintext>", "\x00", "\xff", "a ", "<p a='&amp;'>", "</p>")
	add("HTML tags below a large one", tags, "<p "+strings.Repeat("a=b c d e f ", 600)+">", "<p a>", "<p>", "<script a>")
}
