package explain

import (
	"strings"
	"time"

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
	Provider    string         `json:"provider" doc:"Who operates the mail hosts, as their names tell: google, microsoft, yahoo, apple or another; relay if the operator's relay was used; empty if not recorded."`
	Host        string         `json:"host" doc:"The host's name and address; empty if none was reached."`
	Hosts       *int           `json:"hosts_found" nullable:"true" doc:"How many addresses were found for the destination; null if not recorded."`
	Source      string         `json:"source_address" doc:"The address from which the email was sent; empty if not recorded."`
	Hello       string         `json:"hello" doc:"The name in EHLO; empty if not recorded."`
	Reused      *bool          `json:"connection_reused" nullable:"true" doc:"Whether the connection had carried another email; null if not recorded."`
	TLS         AttemptTLS     `json:"tls"`
	Signing     AttemptSigning `json:"authentication"`
	Stages      []StageTime    `json:"stages" doc:"The times of the stages, as far as they were recorded."`
	Reply       string         `json:"reply" doc:"The reply that decided, word for word."`
	Meaning     ReplyMeaning   `json:"meaning"`
	NextAt      *time.Time     `json:"next_at" nullable:"true"`
	Transcript  string         `json:"transcript" doc:"The SMTP conversation. Empty if the conversations of this email are too long for one answer; GET /emails/{email_id}/attempts has them."`
	NotRecorded []string       `json:"not_recorded" doc:"Facts about this attempt that were not recorded."`
}

// AttemptTLS describes the encryption of an attempt's connection.
type AttemptTLS struct {
	State       string `json:"state" enum:"encrypted,clear,not_recorded,no_connection"`
	Says        string `json:"says"`
	Protocol    string `json:"protocol" doc:"The TLS version and cipher; empty if the connection was not encrypted."`
	Certificate string `json:"certificate" enum:"valid,expired,other_name,unknown_issuer,invalid,not_recorded,none"`
}

// AttemptSigning describes how an attempt's message was authenticated.
type AttemptSigning struct {
	Domain    string   `json:"dkim_domain" doc:"d= of the DKIM signatures; empty if not recorded."`
	Selectors []string `json:"dkim_selectors"`
	Aligned   *bool    `json:"dkim_aligned" nullable:"true" doc:"Whether the domain of the signatures belongs to the domain in From, as DMARC demands; null if not recorded."`
}

// StageTime is the time of one stage.
type StageTime struct {
	Stage    Reason  `json:"stage"`
	Duration float64 `json:"duration_ms"`
}

// attempt explains the attempt with the given index.
func (f *Facts) attempt(i int) AttemptAnswer {
	t := &f.Attempts[i]
	a := AttemptAnswer{Number: i + 1, ID: t.ID, StartedAt: t.StartedAt, Duration: inMS(t.Duration),
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
	e := t.Evidence
	if e == nil {
		a.NotRecorded = append(a.NotRecorded, "provider", "source address", "EHLO name", "DKIM signatures",
			"times of the stages", "why the email waited")
		return a
	}
	a.Provider, a.Hello = e.Provider.String(), e.Hello
	if e.Hosts > 0 {
		a.Hosts = &e.Hosts
	}
	if e.Source.IsValid() {
		a.Source, a.Reused = e.Source.String(), &e.Reused
	}
	if e.SigningDomain != "" {
		aligned := related(e.SigningDomain, f.SenderDomain)
		a.Signing = AttemptSigning{e.SigningDomain, append([]string{}, e.Selectors...), &aligned}
	}
	for x := evidence.Memory; x <= evidence.Final; x++ {
		if took, ok := e.Took(x); ok {
			a.Stages = append(a.Stages, StageTime{spanReasons[x], inMS(took)})
		}
	}
	return a
}

// related reports whether two domains are the same, or one is below the other. Postrider signs with the verified domain
// of the sender, so a comparison of organizational domains is not needed.
func related(a, b string) bool {
	a, b = strings.ToLower(a), strings.ToLower(b)
	return a == b || strings.HasSuffix(a, "."+b) || strings.HasSuffix(b, "."+a)
}

// clears explains why a connection was not encrypted.
var clears = map[evidence.Clear]string{
	evidence.NotOffered:  "The connection was not encrypted: the host does not offer STARTTLS.",
	evidence.Refused:     "The connection was not encrypted: the host offered STARTTLS and refused it.",
	evidence.Broken:      "The connection was not encrypted: a TLS handshake with this address had failed.",
	evidence.SwitchedOff: "The connection was not encrypted: the relay's settings do not ask for TLS.",
}

// certs explains the state of a certificate.
var certs = map[evidence.Cert]struct{ key, says string }{
	evidence.Valid:         {"valid", "The certificate is valid for the host's name."},
	evidence.Expired:       {"expired", "The certificate has expired."},
	evidence.OtherName:     {"other_name", "The certificate is for another name."},
	evidence.UnknownIssuer: {"unknown_issuer", "The certificate was not issued by a known authority."},
	evidence.Invalid:       {"invalid", "The certificate is not valid."},
}

func (t *Try) encryption() AttemptTLS {
	e := t.Evidence
	switch {
	case t.Host == "" || captured(t) || simulated(t) || e != nil && !e.Source.IsValid():
		return AttemptTLS{"no_connection", "No connection was established.", "", "none"}
	case t.TLS == "" && e != nil && e.Clear != 0:
		return AttemptTLS{"clear", clears[e.Clear], "", "none"}
	case t.TLS == "" && e == nil:
		return AttemptTLS{"clear", "The connection was not encrypted. Why is not recorded.", "", "none"}
	case t.TLS == "":
		return AttemptTLS{"not_recorded", "Whether the connection was encrypted is not recorded.", "", "not_recorded"}
	}
	protocol, rest, _ := strings.Cut(t.TLS, ",")
	x := AttemptTLS{"encrypted", "The connection was encrypted (" + protocol + ").", protocol, "not_recorded"}
	if e != nil && e.Cert != 0 {
		x.Certificate = certs[e.Cert].key
		x.Says += " " + certs[e.Cert].says
	} else if strings.HasSuffix(rest, "certificate verified") {
		x.Certificate = "valid"
		x.Says += " " + certs[evidence.Valid].says
	} else {
		x.Says += " The certificate was not verified. Why is not recorded."
	}
	return x
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
