package delivery

import (
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/platform/events"
)

// simulation is the outcome simulated by a test address (API reference section 28). A simulation does not contact any
// host and affects neither suppressions nor reputation.
type simulation string

const (
	actDelivered  simulation = "delivered"
	actBounced    simulation = "bounced"
	actComplained simulation = "complained"
	actSuppressed simulation = "suppressed"
	actUnknown    simulation = "unknown" // the address simulates no known outcome
)

// isSandbox reports whether the domain's addresses are test addresses.
func (s *Service) isSandbox(domain string) bool { return slices.Contains(s.c.SandboxDomains, domain) }

// simulate returns the simulated outcome of sending an email to test addresses.
func simulate(to []string) outcome {
	out := outcome{host: "test addresses", answers: make([]answer, len(to)),
		conversation: "* a test address: Postrider simulates the outcome and connects to no host\n"}
	for i, address := range to {
		out.answers[i] = simulateAddress(address)
		out.conversation += "* " + address + ": " + out.answers[i].reply.String() + "\n"
	}
	return out
}

func simulateAddress(address string) answer {
	local := strings.ToLower(address[:max(strings.LastIndexByte(address, '@'), 0)])
	name, _, labelled := strings.Cut(local, "+")
	a := answer{stage: smtpclient.StageFinal, reply: smtpclient.Reply{Code: 250, Enhanced: "2.0.0", Text: "simulated",
		Local: true}}
	switch act := simulation(name); {
	case act == actDelivered, act == actComplained:
		a.sandbox = act
		return a
	case act == actSuppressed && !labelled:
		a.sandbox = act
		a.reply.Text = "simulated: the address is suppressed and was not mailed"
		return a
	case act == actBounced:
		a.sandbox = act
	default:
		a.sandbox = actUnknown
	}
	a.stage = smtpclient.StageRcpt
	a.reply = smtpclient.Reply{Code: 550, Enhanced: "5.1.1", Text: "user unknown (simulated)", Local: true}
	return a
}

func (s simulation) verdict(r smtpclient.Reply) verdict {
	switch s {
	case actSuppressed:
		return verdict{state: suppressed}
	case actBounced, actUnknown:
		c := classify(smtpclient.StageRcpt, r)
		return verdict{state: bounced, fault: c.Fault, bounce: &events.Bounce{Type: c.Type, SubType: c.SubType,
			Message: c.Say, DiagnosticCode: []string{"smtp; " + r.String()}, Simulated: true}}
	}
	return verdict{state: delivered, complain: s == actComplained}
}

// simulatedSuppression returns the event data for a suppressed test address.
func simulatedSuppression() *events.Suppressed {
	return &events.Suppressed{Type: "Suppressed", Reason: "previous_bounce", DiagnosticCode: []string{},
		Message: "The address is a test address that behaves like a suppressed address."}
}
