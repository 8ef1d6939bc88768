package delivery

import (
	"strings"

	"github.com/postrider/postrider/internal/events"
	"github.com/postrider/postrider/internal/mail/smtpclient"
)

// actOut is the verdict on test addresses (API reference section 28): what a real host would have led to, with no host asked.
func actOut(to []string) verdict {
	v := verdict{host: "test addresses", reply: "250 2.0.0 acted out"}
	for _, address := range to {
		local, _, _ := strings.Cut(strings.ToLower(address), "@")
		name, label, labelled := strings.Cut(local, "+")
		r := recipient{address: address, class: bounced}
		switch {
		case name == "delivered":
			r.class = delivered
		case name == "complained":
			r.class = complained
		case name == "suppressed" && !labelled && label == "":
			r.class = suppressed
			v.silent = len(to) == 1
		default:
			refusal := smtpclient.Reply{Code: 550, Enhanced: "5.1.1", Text: "user unknown"}
			v.reply = refusal.String()
			r.bounce = &events.Bounce{Type: "Permanent", SubType: "General", Message: "The recipient's host says that the address does not exist.",
				DiagnosticCode: []string{"smtp; " + refusal.String()}, Simulated: true}
		}
		v.recipients = append(v.recipients, r)
	}
	v.conversation = "The addresses of this domain act out an outcome; nothing was sent.\n"
	return v
}
