package domainreports

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/authres"
	"github.com/postrider/postrider/internal/mail/dmarcrpt"
	"github.com/postrider/postrider/internal/mail/mailparse"
	"github.com/postrider/postrider/internal/mail/tlsrpt"
	"github.com/postrider/postrider/internal/platform/db"
)

const (
	blobPrefix = "reports/"
	peekMax    = 64 << 10 // unpacked bytes that are read to recognize a file
	reasonMax  = 300      // bytes
	nameMax    = 253
	idMax      = 255
)

// Message is a message for the address of a domain.
type Message struct {
	Parsed  *mailparse.Parsed
	Results *authres.Results // nil if the message was not authenticated
}

// Draft is what a message becomes when it is stored.
type Draft struct {
	target  Target
	reports []*draft
}

// draft is a report with its rows.
type draft struct {
	Report
	by       string   // identity of the reporter; "" if the message is not authenticated
	claimed  []string // domains that the report names as its reporter
	unproven string   // why the authentication of the message does not prove the report; "" if it does
	rows     []row
	sessions []sessions

	isDropped bool // the report was not read, because the limits of the day are used up
	isRepeat  bool // the report was not read, because the same file is stored
}

// Read reads the reports in a message. An error means that the client must try again later.
func (s *Service) Read(ctx context.Context, t Target, m Message) (*Draft, error) {
	if err := s.reading.Acquire(ctx, 1); err != nil {
		return nil, fmt.Errorf("wait to read a report: %w", err)
	}
	defer s.reading.Release(1)
	d := &Draft{target: t}
	sender := senderOf(&m)
	c, err := countsOf(ctx, s.p.DB.Reader, &t, today(s.c.Now()))
	if err != nil {
		return nil, err
	}
	var left *dmarcrpt.ContentLimit
	for _, f := range reportFiles(m.Parsed) {
		if left == nil {
			left = budgetOf(sender.proves(f.kind))
		}
		x, err := s.readFile(ctx, &t, &c, &m, &sender, &f, left)
		if err != nil {
			return nil, err
		}
		d.reports = append(d.reports, x)
	}
	if len(d.reports) == 0 {
		d.reports = []*draft{{Report: Report{State: Unreadable, Reporter: sender.domain,
			Reason: "The message has no report: no part of it begins as gzip, ZIP, XML or JSON does."}}}
	}
	return d, nil
}

// UnreadableDraft returns the draft of a message that could not be parsed.
func UnreadableDraft(t Target) *Draft {
	return &Draft{target: t, reports: []*draft{{Report: Report{State: Unreadable,
		Reason: "The message could not be read."}}}}
}

// readFile reads one file, and stores it as a blob if the report will be stored. Limits of the day that are used up
// already save the work; Store applies them again. A file that is stored already is not read either.
func (s *Service) readFile(ctx context.Context, t *Target, c *dayCounts, m *Message, by *sender, f *file,
	left *dmarcrpt.ContentLimit) (*draft, error) {
	x := &draft{Report: Report{Kind: f.kind, Reporter: by.domain, Size: int64(len(f.content))}}
	if by.proves(f.kind) {
		x.by = identity(by.domain)
	}
	u, err := usageOf(ctx, s.p.DB.Reader, t, c.day, x.by)
	if err != nil {
		return nil, err
	}
	if x.isDropped = !c.mayAdmit(x, &u); x.isDropped {
		return x, nil
	}
	x.fingerprint = fingerprint(x, m, f)
	if x.isRepeat, err = isKnownFile(ctx, s.p.DB.Reader, t, x.fingerprint); err != nil || x.isRepeat {
		return x, err
	}
	isFirst := *left == *budgetOf(by.proves(f.kind))
	if f.kind == TLS {
		err = x.readTLS(t, m, by, f, left)
	} else {
		err = x.readDMARC(ctx, t, f, s.own(ctx), left)
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("read a report: %w", ctx.Err())
	}
	if err == nil {
		err = x.checkPeriod(s.c.Now(), min(maxAge, s.c.Retention))
	}
	var wrong contradiction
	switch {
	case errors.As(err, &wrong):
		x.State, x.Reason = Discarded, sentence(string(wrong))
	case err != nil:
		x.State, x.Reason = Unreadable, sentence(err.Error())
		isOver := errors.Is(err, dmarcrpt.ErrBudget) || errors.Is(err, tlsrpt.ErrBudget)
		if isOver && !isFirst {
			x.fingerprint = "" // another message may have more of the budget left for the same file
		}
	default:
		x.State = Counted
	}
	if x.Proven = x.by != ""; x.Proven && x.State == Counted {
		x.Reason = db.Text(cmp.Or(x.unproven, by.retyped(m, f), by.misnamed(x.claimed)), reasonMax)
		x.Proven = x.Reason == ""
	}
	if x.by != "" && (!x.Proven || x.State != Counted) {
		x.fingerprint = "" // the file may be read again from a message that proves it
	}
	if x.State == Counted {
		x.dedupe = dedupe(&x.Report)
	}
	if x.State != Counted {
		x.rows, x.sessions = nil, nil
		x.Messages, x.Failed, x.Rows, x.ownMessages, x.ownFailed = 0, 0, 0, 0, 0
	}
	return x, s.keepFile(ctx, t, c, &u, x, f.content)
}

// keepFile stores the file of a report, unless the report is a repetition or beyond the limits of the day.
func (s *Service) keepFile(ctx context.Context, t *Target, c *dayCounts, u *usage, x *draft, content []byte) error {
	if !c.admits(x, u) || !c.keeps(x, u) {
		return nil
	}
	if repeated, err := isStored(ctx, s.p.DB.Reader, t, x.dedupe); err != nil || repeated {
		return err
	}
	x.blobKey = blobPrefix + id.New()
	if _, err := s.p.Blobs.Put(ctx, x.blobKey, bytes.NewReader(content)); err != nil {
		return fmt.Errorf("store the file of a report: %w", err)
	}
	return nil
}

// contradiction is why a report is discarded.
type contradiction string

func (c contradiction) Error() string { return string(c) }

// sentence returns an error's text as a sentence for people.
func sentence(text string) string {
	text = db.Text(strings.ToUpper(text[:1])+text[1:], reasonMax)
	return strings.TrimRight(text, ".") + "."
}

func (x *draft) checkPeriod(now time.Time, age time.Duration) error {
	switch {
	case x.End.Sub(x.Begin) > maxPeriod:
		return errors.New("the report covers more than 32 days")
	case x.Begin.After(now.Add(oneDay)):
		return errors.New("the period of the report has not begun yet")
	case x.End.Before(now.Add(-age)):
		return fmt.Errorf("the period of the report ended more than %d days ago", int(age/oneDay))
	}
	return nil
}

// dedupe returns the key by which a repeated report is recognized. Reports without proof have keys of their own, so
// that a forged report does not keep the genuine one from counting.
func dedupe(r *Report) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\x00%t\x00%s\x00%s", r.Kind, r.Proven, r.Reporter, r.ReportID)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// fingerprint recognizes a file that came before from the same sender with the same name and header fields.
func fingerprint(x *draft, m *Message, f *file) string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %q %q %q %q %q ", x.Kind, x.by, x.Reporter, f.name, m.Parsed.Subject,
		headerOf(m, tlsrpt.DomainField), headerOf(m, tlsrpt.SubmitterField))
	h.Write(f.content)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// isWithin reports whether a name is a domain or below it.
func isWithin(name, domain string) bool { return name == domain || strings.HasSuffix(name, "."+domain) }

// file is a part of a message that looks like a report.
type file struct {
	kind    Kind
	name    string
	content []byte
	isText  bool // the file is the text of the message
}

// reportFiles returns the parts that look like reports. If no file does, the text of the message itself may.
func reportFiles(p *mailparse.Parsed) (all []file) {
	for i := range p.Files {
		f := &p.Files[i]
		if kind := kindOf(f.Content, f.Filename+" "+f.ContentType); kind != "" && len(all) < maxReports {
			all = append(all, file{kind, f.Filename, f.Content, false})
		}
	}
	if len(all) == 0 {
		text := []byte(strings.TrimSpace(p.Text()))
		if kind := kindOf(text, ""); kind != "" {
			all = append(all, file{kind, "", text, true})
		}
	}
	return all
}

// kindOf recognizes a report by its first bytes. The name helps only with archives that are damaged.
func kindOf(content []byte, name string) Kind {
	switch {
	case bytes.HasPrefix(content, []byte("PK\x03\x04")):
		return DMARC
	case !bytes.HasPrefix(content, []byte{0x1f, 0x8b}):
		return kindOfText(content[:min(len(content), peekMax)])
	}
	if r, err := gzip.NewReader(bytes.NewReader(content)); err == nil {
		start, _ := io.ReadAll(bufio.NewReader(io.LimitReader(r, peekMax)))
		if kind := kindOfText(start); kind != "" {
			return kind
		}
	}
	if name = strings.ToLower(name); strings.Contains(name, "json") || strings.Contains(name, "tlsrpt") {
		return TLS
	}
	return DMARC
}

func kindOfText(start []byte) Kind {
	start = bytes.TrimLeft(bytes.TrimPrefix(start, []byte("\ufeff")), " \t\r\n\x00")
	switch {
	case bytes.HasPrefix(start, []byte("{")):
		return TLS
	case bytes.HasPrefix(start, []byte("<")):
		return DMARC
	}
	return ""
}

// readDMARC reads a DMARC report and adds its rows up.
func (x *draft) readDMARC(ctx context.Context, t *Target, f *file, own networks, left *dmarcrpt.ContentLimit) error {
	sums := newSums(own, t)
	h, err := dmarcrpt.ReadWithin(bytes.NewReader(f.content), int64(len(f.content)), left, func(r dmarcrpt.Row) error {
		if err := sums.add(&r); err != nil {
			return err
		}
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	x.Organization, x.ReportID = db.Text(h.Org, nameMax), db.Text(h.ID, idMax)
	x.Begin, x.End, x.PolicyDomain = h.Begin, h.End, h.Policy.Domain
	x.claimed = claimsOfDMARC(&h)
	if !isWithin(t.Domain, h.Policy.Domain) && !isWithin(h.Policy.Domain, t.Domain) {
		return contradiction(fmt.Sprintf("The report is about %s, not about %s", db.Text(h.Policy.Domain, nameMax),
			t.Domain))
	}
	x.Messages, x.Failed, x.Rows = sums.messages, sums.failed, sums.rows
	x.ownMessages, x.ownFailed = sums.ownMessages, sums.ownFailed
	x.rows = sums.all()
	return nil
}

// readTLS reads a TLS report. A report that its subject or file name contradicts is discarded (RFC 8460 section 5.6).
func (x *draft) readTLS(t *Target, m *Message, by *sender, f *file, left *dmarcrpt.ContentLimit) error {
	r, err := tlsrpt.ReadWithin(f.content, &left.Bytes)
	if err != nil {
		return err
	}
	x.Organization, x.ReportID = db.Text(r.Organization, nameMax), db.Text(r.ID, idMax)
	x.Begin, x.End, x.claimed = r.Begin, r.End, claimsOfTLS(m, by, f, r)
	about := false
	for i := range r.Policies {
		p := &r.Policies[i]
		name := cleanName(p.Policy.Domain)
		if x.PolicyDomain == "" || name == t.Domain {
			x.PolicyDomain = name
		}
		about = about || name == t.Domain
	}
	if c := x.contradicts(m, f, r); c != "" {
		return contradiction(c)
	}
	// The policy domain of DANE is the name of a mail host, which may lie in another domain. The field in the header then
	// says which domain is meant.
	if !about && cleanName(headerOf(m, tlsrpt.DomainField)) != t.Domain {
		return contradiction(fmt.Sprintf("The report is about %s, not about %s", x.PolicyDomain, t.Domain))
	}
	if !about && !by.covers(m, tlsrpt.DomainField, TLS) {
		x.unproven = "The field TLS-Report-Domain is not signed, or the message has several."
	}
	for i := range r.Policies {
		p := &r.Policies[i]
		if p.Successful > maxTotal-x.Messages || p.Failed > maxTotal-x.Messages-p.Successful {
			return errTooMany
		}
		x.Messages += p.Successful + p.Failed
		x.Failed += p.Failed
		x.Rows += int64(len(p.Failures))
	}
	x.sessions = sessionsOf(r)
	return nil
}

func cleanName(name string) string {
	return db.Text(strings.ToLower(strings.TrimSuffix(strings.TrimSpace(name), ".")), nameMax)
}

func headerOf(m *Message, name string) string {
	for _, f := range m.Parsed.Header {
		if strings.EqualFold(f.Name, name) {
			return f.Value
		}
	}
	return ""
}

// subjectForm matches subjects such as "Report Domain: a.example Submitter: b.example Report-ID: <1@b.example>".
var subjectForm = regexp.MustCompile(`(?i)^\s*Report Domain:\s*(\S+)\s+Submitter:\s*(\S+)`)

// contradicts returns how the subject or the file name contradicts a TLS report, or "". Ids are not compared, because
// large reporters write them differently in the subject and in the report. Names in other forms are ignored.
func (x *draft) contradicts(m *Message, f *file, r *tlsrpt.Report) string {
	names := map[string]bool{}
	for i := range r.Policies {
		names[cleanName(r.Policies[i].Policy.Domain)] = true
	}
	if found := subjectForm.FindStringSubmatch(m.Parsed.Subject); found != nil {
		if name := cleanName(found[1]); !names[name] && !x.isHeaderDomain(m, name) {
			return fmt.Sprintf("The subject names the domain %s, and the report is about %s", name, x.PolicyDomain)
		}
	}
	parts := strings.Split(f.name, "!")
	if len(parts) < 4 {
		return ""
	}
	if name := cleanName(parts[1]); !names[name] && !x.isHeaderDomain(m, name) {
		return fmt.Sprintf("The file name has the domain %s, and the report is about %s", name, x.PolicyDomain)
	}
	end, _, _ := strings.Cut(parts[3], ".")
	for _, c := range []struct {
		text string
		want time.Time
	}{{parts[2], r.Begin}, {end, r.End}} {
		if n, err := strconv.ParseInt(c.text, 10, 64); err == nil && time.Unix(n, 0).Sub(c.want).Abs() > time.Minute {
			return "The period in the file name differs from that in the report"
		}
	}
	return ""
}

// isHeaderDomain reports whether a name is the domain that the header field for it names.
func (x *draft) isHeaderDomain(m *Message, name string) bool {
	return name != "" && cleanName(headerOf(m, tlsrpt.DomainField)) == name
}
