package delivery

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtpclient"
)

// talk tries the hosts of a domain until one has heard the message. It returns an error only when ctx ended before anything
// came of it.
func (s *Service) talk(ctx context.Context, domain string, env smtpclient.Envelope, tls string, msg [][]byte) (outcome, error) {
	limited, cancel := context.WithTimeout(ctx, talkMax)
	defer cancel()
	hops, err := s.plan(limited, domain, tls)
	if err != nil {
		if ctx.Err() != nil {
			return outcome{}, context.Cause(ctx)
		}
		a := unplanned(err)
		return outcome{answers: repeat(a, len(env.To)), conversation: "* " + a.reply.Text + "\n"}, nil
	}
	var out outcome
	var before strings.Builder // what earlier hosts said
	for i, h := range hops {
		if i > 0 {
			before.WriteString(out.conversation)
		}
		var again bool
		out, again = s.say(limited, h, env, msg)
		if ctx.Err() != nil && again {
			return outcome{}, context.Cause(ctx)
		}
		if !again || limited.Err() != nil {
			break
		}
	}
	if before.Len() > 0 {
		out.conversation = before.String() + out.conversation
	}
	return out, nil
}

// say sends the message over a kept connection to one address, or over a new one. again says that this host did not
// hear who is written to, so that the next host may be asked.
func (s *Service) say(ctx context.Context, h hop, env smtpclient.Envelope, msg [][]byte) (out outcome, again bool) {
	out.host = h.String()
	if f, ok := s.hosts.failed(h.addr, time.Now()); ok && time.Since(f.at) < s.hosts.silent {
		out.answers = repeat(f.why, len(env.To))
		out.conversation = fmt.Sprintf("* %s failed %d s ago and is not tried again so soon: %s\n", out.host,
			int(time.Since(f.at).Seconds()), f.why.reply)
		return out, true
	}
	for {
		l, kept, err := s.pool.get(ctx, h.key(), func() (*smtpclient.Conn, error) { return s.dial(ctx, h) })
		if err != nil {
			e, again := out.broken(err, env, smtpclient.Result{})
			if e != nil && (e.Stage == smtpclient.StageConnect || e.Stage == smtpclient.StageGreeting && e.Reply == nil) && ctx.Err() == nil {
				s.hosts.fail(h.addr, out.answers[0], time.Now())
			}
			return out, again
		}
		result, err := l.Send(ctx, env, msg...)
		out.tls = describeTLS(l.TLSState())
		out.conversation = l.conversation(out.host, out.tls, kept)
		s.pool.put(l)
		if err == nil {
			out.answers = make([]answer, len(env.To))
			for i := range out.answers {
				out.answers[i] = decided(result, i)
			}
			return out, false
		}
		if e, ok := errors.AsType[*smtpclient.Error](err); ok && e.Stale && kept && ctx.Err() == nil {
			continue // The host had closed the kept connection; it heard nothing of this message.
		}
		_, again := out.broken(err, env, result)
		return out, again
	}
}

// decided is the answer that the result has for recipient i.
func decided(r smtpclient.Result, i int) answer {
	a := answer{stage: smtpclient.StageFinal, reply: r.Recipient(i)}
	switch {
	case !r.Mail.Positive():
		a.stage = smtpclient.StageMail
	case !r.Rcpt[i].Positive():
		a.stage = smtpclient.StageRcpt
	case r.Data.Code != 354:
		a.stage = smtpclient.StageData
		if r.Data.Code == 0 { // The host took recipients and never got to answer DATA.
			a.reply = local(451, "4.4.2", "the host did not answer to the message")
		}
	}
	return a
}

// broken fills in the answers of a conversation that broke off or never began. Refusals of recipients that came before
// the break stand. It reports whether the next host may be asked.
func (o *outcome) broken(err error, env smtpclient.Envelope, r smtpclient.Result) (e *smtpclient.Error, again bool) {
	e, ok := errors.AsType[*smtpclient.Error](err)
	if !ok {
		e = &smtpclient.Error{Stage: smtpclient.StageConnect, Temporary: true, Err: err}
	}
	o.answers = repeat(interrupted(e), len(env.To))
	decidedFew := false
	for i := range r.Rcpt {
		if r.Mail.Positive() && r.Rcpt[i].Permanent() {
			o.answers[i] = answer{stage: smtpclient.StageRcpt, reply: r.Rcpt[i]}
			decidedFew = true
		}
	}
	if e.Transcript != "" {
		o.conversation = e.Transcript
	}
	if o.conversation == "" {
		o.conversation = "* " + e.Error() + "\n"
	}
	switch e.Stage {
	case smtpclient.StageConnect, smtpclient.StageGreeting, smtpclient.StageHello, smtpclient.StageTLS, smtpclient.StageMail:
		return e, !decidedFew
	}
	return e, false
}

// interrupted is the answer that an error stands for.
func interrupted(e *smtpclient.Error) answer {
	a := answer{stage: e.Stage, unknown: e.Sent}
	switch why := e.Error(); {
	case e.Sent:
		a.stage = smtpclient.StageFinal
		a.reply = local(451, "4.4.2", "the connection ended before the host said whether it took the message; it is sent again with "+
			"the same Message-ID: "+why)
	case e.Reply != nil && (e.Reply.Temporary() || e.Reply.Permanent()):
		a.reply = *e.Reply
	case errors.Is(e, smtpclient.ErrNoTLS):
		a.reply = local(454, "4.7.4", "the sending domain's setting `tls` is `enforced`, and the host offers no TLS")
	case e.Stage == smtpclient.StageTLS:
		a.reply = local(454, "4.7.5", "no secure connection: "+why)
	case e.Stage == smtpclient.StageAuth:
		a.reply = local(454, "4.7.8", why)
	case e.Stage == smtpclient.StageConnect:
		a.reply = local(451, "4.4.1", "the host cannot be reached: "+why)
	default:
		a.reply = local(451, "4.4.2", "the conversation broke off: "+why)
	}
	return a
}

// unplanned is the answer when there is no host to ask.
func unplanned(err error) answer {
	a := answer{stage: smtpclient.StageConnect}
	switch {
	case errors.Is(err, resolve.ErrNullMX):
		a.reply = local(556, "5.1.10", err.Error())
	case errors.Is(err, resolve.ErrNoDomain), errors.Is(err, resolve.ErrNoHost):
		a.reply = local(550, "5.1.2", err.Error())
	case errors.Is(err, errOurselves):
		a.reply = local(554, "5.4.6", err.Error())
	case errors.Is(err, errPrivate):
		a.reply = local(550, "5.4.4", err.Error())
	default:
		a.reply = local(451, "4.4.3", err.Error())
	}
	return a
}

// local is a reply that we give in a host's stead.
func local(code int, enhanced, text string) smtpclient.Reply {
	return smtpclient.Reply{Code: code, Enhanced: enhanced, Text: bounded(strings.ToValidUTF8(text, "?"), replyMax/2), Local: true}
}

func repeat(a answer, n int) []answer {
	all := make([]answer, n)
	for i := range all {
		all[i] = a
	}
	return all
}

// dial opens a connection. Where encryption is only a bonus and the handshake fails, a plain one must do.
func (s *Service) dial(ctx context.Context, h hop) (*smtpclient.Conn, error) {
	o := smtpclient.Options{Hello: s.c.Hostname, TLS: h.mode, ServerName: h.name, RootCAs: s.c.RootCAs, Timeouts: s.c.Timeouts,
		Dial: s.c.Dial, TranscriptLimit: conversationMax}
	if s.c.Transport == Relay {
		o.Username, o.Password = s.c.RelayUsername, s.c.RelayPassword
	}
	if h.mode == smtpclient.TLSOpportunistic && s.hosts.plainOnly(h.addr, time.Now()) {
		o.TLS = smtpclient.TLSNone
	}
	c, err := smtpclient.Dial(ctx, h.addr, o)
	if e, ok := errors.AsType[*smtpclient.Error](err); ok && e.RetryPlain && ctx.Err() == nil {
		s.hosts.rememberPlain(h.addr, time.Now())
		o.TLS = smtpclient.TLSNone
		c, err = smtpclient.Dial(ctx, h.addr, o)
	}
	if err == nil {
		s.hosts.reached(h.addr)
	}
	return c, err
}

func describeTLS(t smtpclient.TLSState) string {
	switch {
	case !t.On():
		return ""
	case t.Verified:
		return t.Version + " " + t.Cipher + ", certificate verified"
	}
	return t.Version + " " + t.Cipher + ", certificate not verified"
}
