package explain

import (
	"fmt"
	"strings"
	"time"
)

// These constants limit the text of an answer: intervals of each recipient, recipients, and bytes of the last
// transcript.
const (
	textIntervals  = 40
	textRecipients = 20
	textTranscript = 4000
)

// actors names the actors in sentences.
var actors = map[Actor]string{Nobody: "nobody", You: "you, the sender", DomainOwner: "the owner of the sending domain",
	Recipient: "the recipient", Operator: "the operator of this installation",
	Provider: "the recipient's mail provider"}

// Name returns the actor's name for a sentence.
func (a Actor) Name() string { return actors[a] }

// Text returns the answer as plain text for a terminal or a language model. The transcript and the replies in it were
// written by strangers.
func (a *Answer) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\nState: %s. Accepted at %s. Who must act: %s.\n", a.Verdict, a.State, at(a.AcceptedAt),
		a.Act.Name())
	for i := range a.Recipients {
		if i == textRecipients {
			fmt.Fprintf(&b, "\nAnd %d more recipients.\n", len(a.Recipients)-i)
			break
		}
		a.Recipients[i].writeTo(&b, len(a.Recipients) > 1)
	}
	b.WriteString("\nAttempts:\n")
	if len(a.Attempts) == 0 {
		b.WriteString("- none recorded\n")
	}
	for i := range a.Attempts {
		a.Attempts[i].writeTo(&b)
	}
	if n := len(a.Attempts); n > 0 && a.Attempts[n-1].Transcript != "" {
		text := a.Attempts[n-1].Transcript
		if len(text) > textTranscript {
			text = strings.ToValidUTF8(text[:textTranscript], "") + "…\n"
		}
		fmt.Fprintf(&b, "\nThe SMTP conversation of attempt %d (milliseconds since its start; C: Postrider, S: the host, "+
			"*: a note):\n%s", n, text)
	}
	if len(a.Afterwards) > 0 {
		b.WriteString("\nAfterwards:\n")
	}
	for _, l := range a.Afterwards {
		fmt.Fprintf(&b, "- %s %s %s\n", at(l.At), l.Says, l.Recipient)
	}
	for _, x := range a.NotRecorded {
		fmt.Fprintf(&b, "\nNot recorded: %s.\n", x)
	}
	return b.String()
}

func (r *RecipientAnswer) writeTo(b *strings.Builder, several bool) {
	if fmt.Fprintf(b, "\n%s (%s)\n", r.Address, r.State); several {
		fmt.Fprintf(b, "  %s Who must act: %s.\n", r.Verdict, r.Act.Name())
	}
	if r.Meaning != nil && r.Reply != "" {
		means := r.Meaning.Says + " "
		if strings.Contains(r.Verdict, r.Meaning.Says) {
			means = "what the first sentence says. "
		}
		fmt.Fprintf(b, "  Reply: %s\n  It means: %s(%s; blames: %s)\n", r.Reply, means, r.Meaning.Class, r.Meaning.Blames)
		if r.Meaning.Published != "" {
			fmt.Fprintf(b, "  Published by %s.\n", r.Meaning.Published)
		}
	}
	if r.Next != "" {
		fmt.Fprintf(b, "  Next: %s\n", r.Next)
	}
	for i, s := range r.Steps {
		fmt.Fprintf(b, "  %d. %s\n", i+1, s)
	}
	fmt.Fprintf(b, "  The time, %s in all:\n", fromMS(r.TotalMS))
	for i, x := range r.Intervals {
		if i == textIntervals {
			fmt.Fprintf(b, "    and %d more intervals\n", len(r.Intervals)-i)
			break
		}
		number := ""
		if x.Attempt > 0 {
			number = fmt.Sprintf(" (attempt %d)", x.Attempt)
		}
		fmt.Fprintf(b, "    %-14s %s%s\n", fromMS(x.Duration), x.Says, number)
	}
}

func fromMS(ms float64) string { return length(time.Duration(ms * float64(time.Millisecond))) }

func (a *AttemptAnswer) writeTo(b *strings.Builder) {
	fmt.Fprintf(b, "%d. %s, %s: %s\n", a.Number, at(a.StartedAt), strings.Join(a.Recipients, ", "), a.Outcome)
	if a.Host != "" {
		provider := ""
		if a.Provider != "" {
			provider = ", provider " + a.Provider
		}
		fmt.Fprintf(b, "   Host: %s%s\n", a.Host, provider)
	}
	if a.Source != "" {
		reused := "a new connection"
		if *a.Reused {
			reused = "a connection that had carried another email"
		}
		fmt.Fprintf(b, "   From %s as %s, over %s\n", a.Source, a.Hello, reused)
	}
	if a.PTR.State != "not_recorded" {
		fmt.Fprintf(b, "   Reverse DNS: %s\n", a.PTR.Says)
	}
	if a.DNS != nil {
		a.DNS.writeTo(b)
	}
	fmt.Fprintf(b, "   Encryption: %s\n", a.TLS.Says)
	if a.TLS.Problem != "" {
		fmt.Fprintf(b, "   Certificate problem: %s\n", a.TLS.Problem)
	}
	if x := a.Signing; x.Domain != "" {
		fmt.Fprintf(b, "   DKIM: %s (%s), %s the domain in From\n", x.Domain, strings.Join(x.Selectors, ", "),
			alignment(x.DKIMApart()))
	}
	if x := a.Signing; x.ReturnPath != "" {
		fmt.Fprintf(b, "   SPF: checked for %s, %s the domain in From\n", x.ReturnPath, alignment(x.SPFApart()))
	}
	fmt.Fprintf(b, "   Reply: %s\n", a.Reply)
	if a.Same != nil {
		fmt.Fprintf(b, "   Others: %s\n", a.Same.Says)
	}
	if len(a.NotRecorded) > 0 {
		fmt.Fprintf(b, "   Not recorded: %s\n", strings.Join(a.NotRecorded, ", "))
	}
}

func alignment(apart bool) string {
	if apart {
		return "not aligned with"
	}
	return "aligned with"
}

func (d *AttemptDNS) writeTo(b *strings.Builder) {
	fmt.Fprintf(b, "   DNS: %s\n", d.Says)
	for _, h := range d.Hosts {
		var to []string
		for _, a := range h.Addresses {
			mark := ""
			if a.Tried {
				mark = " (tried)"
			}
			to = append(to, a.IP+mark)
		}
		fmt.Fprintf(b, "     %d %s %s%s\n", h.Pref, h.Name, strings.Join(to, ", "), h.Says)
	}
}
