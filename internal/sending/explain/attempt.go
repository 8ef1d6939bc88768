package explain

import (
	"strings"
	"time"

	"github.com/postrider/postrider/internal/lib/registrable"
	"github.com/postrider/postrider/internal/sending/evidence"
)

// AttemptAnswer explains one delivery attempt.
type AttemptAnswer struct {
	Number      int            `json:"number"`
	ID          string         `json:"id"`
	StartedAt   time.Time      `json:"started_at"`
	Duration    float64        `json:"duration_ms"`
	Destination string         `json:"destination"`
	Recipients  []string       `json:"recipients"`
	Outcome     string         `json:"outcome" enum:"delivered,delayed,bounced,mixed,unknown"`
	Provider    string         `json:"provider" doc:"The operator of the mail hosts, as their names tell: google, microsoft, yahoo, apple or another; relay if the operator's relay was used; empty if not recorded."`
	Host        string         `json:"host" doc:"The host's name and address; empty if none was reached."`
	Hosts       *int           `json:"hosts_found" nullable:"true" doc:"How many addresses were found for the destination; null if not recorded."`
	Source      string         `json:"source_address" doc:"The address from which the email was sent; empty if not recorded."`
	Hello       string         `json:"hello" doc:"The name in EHLO; empty if not recorded."`
	Reused      *bool          `json:"connection_reused" nullable:"true" doc:"Whether the connection had carried another email; null if not recorded."`
	PTR         AttemptPTR     `json:"source_ptr"`
	DNS         *AttemptDNS    `json:"dns" doc:"The mail hosts of the destination, as the DNS named them; null if not recorded."`
	TLS         AttemptTLS     `json:"tls"`
	Signing     AttemptSigning `json:"authentication"`
	Stages      []StageTime    `json:"stages" doc:"The times of the stages, as far as they were recorded."`
	Reply       string         `json:"reply" doc:"The reply that decided, word for word."`
	Meaning     ReplyMeaning   `json:"meaning"`
	Same        *SameAnswer    `json:"same_answer" doc:"How many other attempts got the same kind of answer; null if not recorded."`
	NextAt      *time.Time     `json:"next_at" nullable:"true"`
	Transcript  string         `json:"transcript" doc:"The SMTP conversation. Empty if the conversations of this email are too long for one answer; GET /emails/{email_id}/attempts has them."`
	NotRecorded []string       `json:"not_recorded" doc:"Facts about this attempt that were not recorded."`
}

// AttemptSigning describes how an attempt's message was authenticated.
type AttemptSigning struct {
	Domain    string   `json:"dkim_domain" doc:"d= of the DKIM signatures; empty if not recorded."`
	Selectors []string `json:"dkim_selectors"`
	Aligned   *bool    `json:"dkim_aligned" nullable:"true" doc:"Whether the domain of the signatures and the domain in From belong to one organization, as DMARC demands; null if not recorded."`

	ReturnPath string `json:"return_path_domain" doc:"The domain in MAIL FROM, which SPF checks; empty if not recorded."`
	SPFAligned *bool  `json:"spf_aligned" nullable:"true" doc:"Whether the domain in MAIL FROM and the domain in From belong to one organization, so that a passing SPF check counts for DMARC; null if not recorded."`
}

// DKIMApart reports whether the signatures are known not to be aligned with the domain in From.
func (s AttemptSigning) DKIMApart() bool { return s.Aligned != nil && !*s.Aligned }

// SPFApart reports whether the domain in MAIL FROM is known not to be aligned with the domain in From.
func (s AttemptSigning) SPFApart() bool { return s.SPFAligned != nil && !*s.SPFAligned }

// StageTime is the time of one stage.
type StageTime struct {
	Stage    Reason  `json:"stage"`
	Duration float64 `json:"duration_ms"`
}

// attempt explains the attempt with the given index.
func (f *Facts) attempt(i int) AttemptAnswer {
	t := &f.Attempts[i]
	a := AttemptAnswer{Number: i + 1, ID: t.ID, StartedAt: t.StartedAt, Duration: inMS(max(t.Duration, 0)),
		Destination: t.Destination,
		Recipients:  append([]string{}, t.Recipients...), Outcome: t.Outcome, Host: t.Host, Reply: t.Reply,
		Meaning: t.meaning(t.Reply, t.NextAt.IsZero()), Transcript: t.Conversation, TLS: t.encryption(),
		Signing: AttemptSigning{Selectors: []string{}}, Stages: []StageTime{}, NotRecorded: []string{}}
	if t.Outcome == "unknown" {
		a.Meaning = Translate(evidence.NotRecorded, "", "451 4.4.2 "+noMessageAnswer, true, t.NextAt.IsZero())
	}
	if !t.NextAt.IsZero() {
		a.NextAt = &t.NextAt
	}
	a.PTR, a.Signing = t.ptr(), f.signing(t)
	if t.contacted() && len(a.TLS.Names) == 0 && a.TLS.State == "encrypted" {
		a.NotRecorded = append(a.NotRecorded, "names in the certificate")
	}
	e := t.Evidence
	if e == nil {
		if t.unreadable != nil {
			a.NotRecorded = append(a.NotRecorded, t.unreadable.Error())
		}
		a.NotRecorded = append(a.NotRecorded, "provider", "MX records", "source address", "EHLO name",
			"DKIM signatures", "times of the stages", "why the email waited")
		return a
	}
	a.Provider, a.Hello = e.Provider.String(), e.Hello
	if e.Hosts > 0 {
		a.Hosts = &e.Hosts
	}
	if e.Source.IsValid() {
		a.Source, a.Reused = e.Source.String(), &e.Reused
	}
	if a.DNS, a.Same = t.dns(), t.same(a.Meaning); a.DNS == nil && t.routed() {
		a.NotRecorded = append(a.NotRecorded, "MX records")
	}
	if a.PTR.State == "not_recorded" && e.Source.IsValid() {
		a.NotRecorded = append(a.NotRecorded, "PTR record of the source address")
	}
	for x := evidence.Memory; x <= evidence.Final; x++ {
		if took, ok := e.Took(x); ok {
			a.Stages = append(a.Stages, StageTime{spanReasons[x], inMS(took)})
		}
	}
	return a
}

// contacted reports whether the attempt had a connection to a mail host.
func (t *Try) contacted() bool {
	return t.Host != "" && !captured(t) && !simulated(t) && (t.Evidence == nil || t.Evidence.Source.IsValid())
}

// routed reports whether the hosts of the attempt were looked up in the DNS.
func (t *Try) routed() bool { return !captured(t) && !simulated(t) && t.provider() != evidence.Relay }

// signing describes the authentication of an attempt. The domain in MAIL FROM is that of the transcript.
func (f *Facts) signing(t *Try) (s AttemptSigning) {
	s.Selectors = []string{}
	if e := t.Evidence; e != nil && e.SigningDomain != "" {
		aligned := aligned(e.SigningDomain, f.SenderDomain)
		s.Domain, s.Selectors, s.Aligned = e.SigningDomain, append(s.Selectors, e.Selectors...), &aligned
	}
	if s.ReturnPath = returnPathDomain(t.Conversation); s.ReturnPath != "" {
		aligned := aligned(s.ReturnPath, f.SenderDomain)
		s.SPFAligned = &aligned
	}
	return s
}

// aligned reports whether two domains belong to one organization, as the relaxed alignment of DMARC demands (RFC 9989
// section 4.4). An explanation makes no look-ups, so aligned compares registrable domains. A psd tag in a DMARC record
// can change the result that a receiver gets.
func aligned(a, b string) bool {
	a, b = strings.ToLower(a), strings.ToLower(b)
	return a == b || a != "" && b != "" && registrable.Domain(a) == registrable.Domain(b)
}

// returnPathDomain returns the domain in the first MAIL FROM command of a transcript, or "". All commands of an attempt
// have the same.
func returnPathDomain(text string) string {
	const command = " C: MAIL FROM:<"
	i := strings.Index(text, command)
	if i < 0 {
		return ""
	}
	address, _, ok := strings.Cut(text[i+len(command):], ">")
	at := strings.LastIndexByte(address, '@')
	if !ok || at < 0 || strings.ContainsAny(address, "\r\n") {
		return ""
	}
	return strings.ToLower(address[at+1:])
}

// transcriptsMax is the maximum size of all transcripts in an answer, in bytes.
const transcriptsMax = 256 << 10

// trimTranscripts removes the oldest transcripts if all together are too long.
func trimTranscripts(all []AttemptAnswer) {
	left := transcriptsMax
	for i := len(all) - 1; i >= 0; i-- {
		if left -= len(all[i].Transcript); left < 0 {
			all[i].Transcript = ""
			all[i].NotRecorded = append(all[i].NotRecorded, "transcript: it is left out here")
		}
	}
}

// replyFromTranscript returns the host's reply to RCPT for one recipient, or "" if the transcript does not show it.
// With pipelining, replies come in the order of the commands.
func replyFromTranscript(text, address string) string {
	position, commands := -1, 0
	var replies []string
	for line := range strings.Lines(text) {
		_, line, _ = strings.Cut(strings.TrimRight(line, "\r\n"), " ")
		who, said, _ := strings.Cut(line, ": ")
		switch {
		case who == "C" && strings.HasPrefix(said, "MAIL FROM:"):
			position, commands, replies = -1, 1, nil
		case who == "C" && commands > 0:
			if strings.EqualFold(said, "RCPT TO:<"+address+">") {
				position = commands
			}
			commands++
		case who == "S" && commands > 0 && len(said) > 3 && said[3] == ' ':
			replies = append(replies, said)
		}
	}
	if position < 0 || position >= len(replies) || replies[position][0] == '2' {
		return ""
	}
	return replies[position]
}
