package delivery

import (
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/mail/report"
	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/platform/events"
)

// answer is the reply that determines one recipient's outcome in one try. If the host sent no reply, this package
// creates one with Local set.
type answer struct {
	stage   smtpclient.Stage
	reply   smtpclient.Reply
	unknown bool // the host may have accepted the message, but its final answer is missing

	sandbox simulation // the outcome simulated by a test address
}

// state is the state of a recipient after a delivery attempt.
type state uint8

const (
	delivered state = iota
	delayed
	bounced
	suppressed // only for test addresses; other suppressed recipients are not tried
)

// verdict says what an answer means for a recipient.
type verdict struct {
	state    state
	until    time.Time      // if delayed: time of the next try
	bounce   *events.Bounce // if bounced
	fault    report.Fault   // if delayed or bounced
	throttle bool           // the host asks us to send less mail
	hint     time.Duration  // how long the host asks us to wait; 0 if not specified
	complain bool           // the recipient is a test address that complains after delivery
	codes    string         // the codes of the answer, if throttle
	soft     bool           // refused temporarily before RCPT, so the sender may be the reason
}

// hintMax is the longest wait that is granted if a host asks for one.
const hintMax = 4 * time.Hour

// judge returns the verdict on an answer. The parameter wait is the scheduled wait before the next try, and exhausted
// means that no more tries are scheduled. The function judge has no side effects.
func judge(a answer, wait time.Duration, exhausted bool, now time.Time) verdict {
	if a.sandbox != "" {
		return a.sandbox.verdict(a.reply)
	}
	r := a.reply
	if r.Positive() && !a.unknown {
		return verdict{state: delivered}
	}
	c := classify(a.stage, r)
	v := verdict{fault: c.Fault, state: bounced}
	early := a.stage == smtpclient.StageConnect || a.stage == smtpclient.StageGreeting ||
		a.stage == smtpclient.StageHello ||
		a.stage == smtpclient.StageTLS || a.stage == smtpclient.StageAuth
	// A refusal before the SMTP envelope concerns our server and not the recipient, so it is treated as temporary.
	if !r.Permanent() || a.unknown || early && !r.Local {
		v.hint = waitHint(r.Text)
		v.state = delayed
		v.throttle = !r.Local && (c.Throttle || r.Code == 421 && !c.Greylisted() ||
			strings.HasPrefix(r.Enhanced, "4.7.") && c.Fault == report.Ours && c.SubType == report.General)
		if v.throttle {
			v.codes = codes(r)
		}
		v.soft = !r.Local && !v.throttle && (a.stage == smtpclient.StageGreeting || a.stage == smtpclient.StageMail)
		if !exhausted {
			v.until = now.Add(max(wait, min(v.hint, hintMax)))
			return v
		}
		v.state = bounced
		c = c.Expired()
	}
	v.bounce = &events.Bounce{Type: c.Type, SubType: c.SubType, Message: c.Say, Suppress: c.Suppress,
		DiagnosticCode: []string{"smtp; " + r.String()}}
	return v
}

// classify returns the classification of a refusal. The parameter stage says which command was refused.
func classify(stage smtpclient.Stage, r smtpclient.Reply) report.Class {
	scope := report.ScopeSession
	switch stage {
	case smtpclient.StageMail:
		scope = report.ScopeSender
	case smtpclient.StageRcpt:
		scope = report.ScopeRecipient
	case smtpclient.StageData, smtpclient.StageFinal:
		scope = report.ScopeMessage
	}
	return report.Refusal{Code: r.Code, Enhanced: r.Enhanced, Text: r.Text, Scope: scope, Local: r.Local}.Class()
}

// waitHint returns the wait that a host requests in its reply, as in "try again in 5 minutes" or "retry after 300
// seconds", up to a day. If the reply does not request a wait, waitHint returns 0.
func waitHint(text string) time.Duration {
	words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9')
	})
	asked := false
	for i, w := range words {
		switch w {
		case "again", "retry", "wait", "come", "back", "greylisted", "greylisting", "greylist", "graylisted", "deferred",
			"expires", "resend":
			asked = true
			continue
		}
		if !asked || w[0] < '0' || w[0] > '9' {
			continue
		}
		digits := strings.TrimRight(w, "abcdefghijklmnopqrstuvwxyz")
		n, err := strconv.Atoi(digits)
		if err != nil || n <= 0 || n > 24*3600 {
			continue
		}
		unit := w[len(digits):]
		if unit == "" && i+1 < len(words) {
			unit = words[i+1]
		}
		if d := unitOf(unit); d > 0 {
			return min(time.Duration(n)*d, 24*time.Hour)
		}
	}
	return 0
}

func unitOf(word string) time.Duration {
	switch word {
	case "s", "sec", "secs", "second", "seconds":
		return time.Second
	case "m", "min", "mins", "minute", "minutes":
		return time.Minute
	case "h", "hr", "hrs", "hour", "hours":
		return time.Hour
	}
	return 0
}
