package delivery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/tlspolicies"
)

// route is the sequence of hosts at a destination to which a message may be sent.
type route struct {
	team   string
	seen   lookup
	hops   []hop
	next   int             // index into hops
	before strings.Builder // transcripts of the conversations with earlier hosts
	out    outcome         // outcome of the last host
	// earlier is how long the hosts before the last one took, with the waits between them.
	earlier time.Duration
}

// talk tries the hosts on a route in order until one of them has received the RCPT commands. An error is returned only
// if ctx ended before an outcome was known, or if the job lost its lease before the whole message was sent. If talk
// returns a channel, the next host is busy with other messages. The caller must wait until the channel is closed before
// it calls talk again. While the caller waits, the message holds no connection.
func (s *Service) talk(ctx context.Context, r *route, env smtpclient.Envelope,
	msg [][]byte) (news <-chan struct{}, err error) {
	limited, cancel := context.WithTimeout(ctx, talkMax)
	defer cancel()
	for r.next < len(r.hops) {
		began := s.shape.now()
		out, news, again := s.tryHost(limited, r.hops[r.next], r.team, env, msg)
		if news != nil {
			return news, nil
		}
		if _, ok := errors.AsType[*relayNameError](out.withheld); ok && r.next+1 < len(r.hops) {
			r.next++ // another relay may have a name that can be looked up
			fmt.Fprintf(&r.before, "* %s: %v\n", r.hops[r.next-1], out.withheld)
			continue
		}
		if out.withheld != nil {
			return nil, out.withheld
		}
		if ctx.Err() != nil && again {
			return nil, context.Cause(ctx)
		}
		if r.next++; r.next > 1 {
			r.before.WriteString(r.out.conversation)
		}
		r.earlier += r.out.spent
		r.out, r.out.spent = out, s.shape.now().Sub(began)
		if !again || limited.Err() != nil {
			break
		}
	}
	r.out.earlier = r.earlier
	if r.before.Len() > 0 {
		r.out.conversation = r.before.String() + r.out.conversation
	}
	return nil, nil
}

// allInBackoff returns an outcome and true if all hosts on a route are in backoff. If allInBackoff returns true, the
// message does not have to be composed.
func (s *Service) allInBackoff(r *route, recipients int) (out outcome, ok bool) {
	now := s.shape.now()
	for _, h := range r.hops {
		f, ok := s.hosts.backoff(h.at(), r.team, now)
		if !ok || s.pool.has(h.key(), h.verifies(), h.messages) {
			return outcome{}, false
		}
		conversation := out.conversation
		out = inBackoff(h, f, recipients, now)
		out.conversation = conversation + out.conversation
	}
	return out, true
}

func inBackoff(h hop, f failure, recipients int, now time.Time) outcome {
	return outcome{host: h.String(), relay: h.relayName(), rule: h.rule, answers: repeatAnswer(f.why, recipients),
		conversation: fmt.Sprintf("* %s failed %d s ago and is not tried again so soon: %s\n", h,
			int(now.Sub(f.at).Seconds()), f.why.reply)}
}

// tryHost sends the message to one address, over an idle or a new connection. The boolean result is true if the next
// host may be tried, because this host has received no recipients. The returned channel has the same meaning as in
// talk.
func (s *Service) tryHost(ctx context.Context, h hop, team string, env smtpclient.Envelope, msg [][]byte) (out outcome,
	news <-chan struct{}, again bool) {
	began, at := s.shape.now(), h.at()
	if h.connections > s.c.LaneConnections {
		s.hosts.raise(at, h.connections, began)
	}
	may, news, f := s.hosts.begin(at, team, began)
	if news != nil {
		return out, news, true
	}
	if !may {
		return inBackoff(h, f, len(env.To), began), nil, true
	}
	defer func() {
		now := s.shape.now()
		s.hosts.end(at, team, out.response, now.Sub(began), now)
	}()
	if out, news, again = s.converse(ctx, h, team, env, msg); news == nil && out.withheld == nil {
		s.sendFurther(ctx, h, team, &out, env, msg)
	}
	return out, news, again
}

// converse sends the message to the recipients that one transaction may have. It is for tryHost, which describes the
// results.
func (s *Service) converse(ctx context.Context, h hop, team string, env smtpclient.Envelope,
	msg [][]byte) (out outcome, news <-chan struct{}, again bool) {
	at := h.at()
	for {
		l := s.pool.get(h.key(), h.verifies(), h.messages)
		kept := l != nil
		if now := s.shape.now(); !kept {
			if f, ok := s.hosts.backoff(at, team, now); ok {
				return inBackoff(h, f, len(env.To), now), nil, true
			}
			may, news, f := s.hosts.claimDial(at, now)
			if news != nil {
				return out, news, true
			}
			if !may {
				return inBackoff(h, f, len(env.To), now), nil, true
			}
			s.hosts.closeExcess(at)
			if l, out, again = s.open(ctx, h, team, env); l == nil {
				return out, nil, again
			}
		}
		out.host, out.relay, out.rule, l.most = h.String(), h.relayName(), h.rule, h.messages
		sending := s.shape.now()
		result, err := s.send(ctx, l, env, msg)
		out.took = s.shape.now().Sub(sending)
		out.tls = describeTLS(l.TLSState())
		out.conversation, out.link = l.conversation(kept), l.link(kept)
		s.pool.put(l)
		if err == nil {
			s.hosts.recordAnswer(at, team, s.shape.now())
			out.response = replied
			out.answers = make([]answer, len(env.To))
			for i := range out.answers {
				out.answers[i] = answerFor(result, i)
			}
			return out, nil, false
		}
		if e, ok := errors.AsType[*smtpclient.Error](err); ok && e.Stale && kept && ctx.Err() == nil {
			continue // the host had closed the idle connection before this message was sent
		}
		e, again := out.interrupt(err, env, result)
		if e.Stage == smtpclient.StageBody && (errors.Is(e, jobs.ErrStopping) || errors.Is(e, jobs.ErrLost) ||
			errors.Is(e, jobs.ErrUnsure)) {
			out.withheld = e
			return out, nil, again
		}
		if stopped(ctx) {
			return out, nil, again
		}
		out.setResponse(e)
		if e.Timeout() {
			s.hosts.recordStall(at, team, out.answers[0], s.shape.now())
		}
		return out, nil, again
	}
}

// stopped reports whether this node canceled the conversation; it returns false if the conversation reached the time
// limit talkMax.
func stopped(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

// setResponse sets the kind of response for a conversation that ended with an error.
func (o *outcome) setResponse(e *smtpclient.Error) {
	if o.response = unanswered; e.Reply != nil {
		o.response = replied
	}
}

// open opens a connection to an address after claimDial has permitted the dial. If the connection fails, open returns a
// complete outcome.
func (s *Service) open(ctx context.Context, h hop, team string,
	env smtpclient.Envelope) (l *pooledConn, out outcome, again bool) {
	what, why := inconclusive, answer{}
	defer func() { s.logRelay(h, s.hosts.endDial(h.at(), what, why, s.shape.now()), why) }()
	var counted *socket
	plain := false
	l, err := s.pool.dial(h.key(), func() (c *smtpclient.Conn, err error) {
		c, plain, err = s.dial(ctx, h, team, &counted)
		return c, err
	})
	if err == nil {
		what, l.socket, l.plain, l.name = greeted, counted, plain, h.verifies()
		s.countSession(h, l.Conn, counted, nil)
		return l, out, false
	}
	out.host, out.relay, out.rule = h.String(), h.relayName(), h.rule
	if name, ok := errors.AsType[*net.DNSError](err); ok && !name.IsNotFound && h.relay != nil {
		out.withheld = &relayNameError{err} // the operator's relay cannot be found, which says nothing about this message
		return nil, out, false
	}
	e, again := out.interrupt(err, env, smtpclient.Result{})
	again = again || h.rests(e)
	out.link.times, out.link.tls = e.Times, e.TLS
	if !stopped(ctx) {
		s.countSession(h, nil, counted, e)
	}
	if !stopped(ctx) && !endedByUs(e) {
		out.setResponse(e)
	}
	switch why = out.answers[0]; {
	case stopped(ctx):
	case h.rests(e), e.Stage == smtpclient.StageConnect, e.Stage == smtpclient.StageGreeting && e.Reply == nil,
		e.Stage == smtpclient.StageHello && e.Timeout():
		what = noGreeting
	case e.Timeout(): // a TLS handshake timeout counts only against the team, because the team chose the TLS mode
		what = greeted
		s.hosts.recordStall(h.at(), team, why, s.shape.now())
	default:
		what = greeted
	}
	return nil, out, again
}

// send sends the message over the connection. If the method Send panics, the connection is closed, so that the pool
// does not count it forever.
func (s *Service) send(ctx context.Context, l *pooledConn, env smtpclient.Envelope,
	msg [][]byte) (r smtpclient.Result, err error) {
	done := false
	defer func() {
		if !done {
			s.pool.end(l)
		}
	}()
	r, err = l.Send(ctx, env, msg...)
	done = true
	return r, err
}

// answerFor returns the answer for the recipient with index i.
func answerFor(r smtpclient.Result, i int) answer {
	a := answer{stage: smtpclient.StageFinal, reply: r.Recipient(i)}
	switch {
	case !r.Mail.Positive():
		a.stage = smtpclient.StageMail
	case !r.Rcpt[i].Positive():
		a.stage = smtpclient.StageRcpt
	case r.Data.Code != 354:
		a.stage = smtpclient.StageData
		if r.Data.Code == 0 { // The host accepted recipients but never answered DATA.
			a.reply = ownReply(451, "4.4.2", "the host did not answer to the message")
		}
	}
	return a
}

// interrupt sets the answers that are recorded for a conversation that failed or never began. Recipients that the host
// has already refused permanently keep that answer. The boolean result reports whether the next host may be tried.
func (o *outcome) interrupt(err error, env smtpclient.Envelope, r smtpclient.Result) (e *smtpclient.Error, again bool) {
	e, ok := errors.AsType[*smtpclient.Error](err)
	if !ok {
		e = &smtpclient.Error{Stage: smtpclient.StageConnect, Temporary: true, Err: err}
	}
	o.answers = repeatAnswer(answerForError(e), len(env.To))
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
	case smtpclient.StageConnect, smtpclient.StageGreeting, smtpclient.StageHello, smtpclient.StageTLS,
		smtpclient.StageMail:
		return e, !decidedFew
	}
	return e, false
}

// answerForError converts an SMTP client error to the answer recorded for recipients.
func answerForError(e *smtpclient.Error) answer {
	a := answer{stage: e.Stage, unknown: e.Sent}
	switch why := e.Error(); {
	case e.Sent:
		a.stage = smtpclient.StageFinal
		a.reply = ownReply(451, "4.4.2", "the connection ended before the host said whether it took the message; it is sent "+
			"again with "+
			"the same Message-ID: "+why)
	case e.Reply != nil && (e.Reply.Temporary() || e.Reply.Permanent()):
		a.reply = *e.Reply
	case errors.Is(e, smtpclient.ErrNoTLS):
		a.reply = ownReply(454, "4.7.4", "the sending domain's setting `tls`, the operator, or a policy of the "+
			"recipient's domain (DANE or MTA-STS) requires TLS, and the host offers none")
	case e.Stage == smtpclient.StageTLS:
		a.reply = ownReply(454, "4.7.5", "no secure connection: "+why)
	case e.Stage == smtpclient.StageAuth:
		a.reply = ownReply(454, "4.7.8", why)
	case e.Stage == smtpclient.StageConnect:
		a.reply = ownReply(451, "4.4.1", "the host cannot be reached: "+why)
	default:
		a.reply = ownReply(451, "4.4.2", "the conversation broke off: "+why)
	}
	return a
}

// answerForPlanError converts an error from plan, which found no host to try, to the answer recorded for recipients.
func answerForPlanError(err error) answer {
	a := answer{stage: smtpclient.StageConnect}
	switch {
	case errors.Is(err, resolve.ErrNullMX):
		a.reply = ownReply(556, "5.1.10", err.Error())
	case errors.Is(err, resolve.ErrNoDomain), errors.Is(err, resolve.ErrNoHost):
		a.reply = ownReply(550, "5.1.2", err.Error())
	case errors.Is(err, errOurselves):
		a.reply = ownReply(554, "5.4.6", err.Error())
	case errors.Is(err, errPrivate):
		a.reply = ownReply(550, "5.4.4", err.Error())
	case errors.Is(err, errNotInPolicy), errors.Is(err, resolve.ErrBogus), errors.Is(err, tlspolicies.ErrUnknown):
		a.reply = ownReply(451, "4.7.5", err.Error())
	default:
		a.reply = ownReply(451, "4.4.3", err.Error())
	}
	return a
}

// ownReply creates an SMTP reply that is recorded if no host has replied.
func ownReply(code int, enhanced, text string) smtpclient.Reply {
	return smtpclient.Reply{Code: code, Enhanced: enhanced, Text: elideMiddle(strings.ToValidUTF8(text, "?"), replyMax/2),
		Local: true}
}

func repeatAnswer(a answer, n int) []answer {
	all := make([]answer, n)
	for i := range all {
		all[i] = a
	}
	return all
}

// optionsFor returns how to connect to a hop.
func (s *Service) optionsFor(h hop) smtpclient.Options {
	o := smtpclient.Options{Hello: s.c.Hostname, TLS: h.mode, ServerName: h.name, RootCAs: s.c.RootCAs, DANE: h.dane,
		Timeouts: s.c.Timeouts, Dial: s.c.Dial}
	if h.mode == smtpclient.TLSDANE {
		o.ServerName, o.DANENames = h.names[0], h.names[1:]
	}
	if h.relay != nil {
		o.Username, o.Password = h.relay.Username, h.relay.Password
	}
	return o
}

// shortGreeting is the greeting timeout for a team that holds more than an eighth of all connections.
const shortGreeting = 30 * time.Second

// dial opens a connection. If the TLS handshake fails in opportunistic mode, dial opens an unencrypted connection
// instead, and plain is true. The new socket is stored in counted.
//
// Some hosts delay the greeting to detect impatient spam software, so the timeout is long for a team with few
// connections. For a team with many connections, the timeout is shorter, because waiting for silent hosts would delay
// its other mail.
func (s *Service) dial(ctx context.Context, h hop, team string, counted **socket) (c *smtpclient.Conn, plain bool,
	err error) {
	o := s.optionsFor(h)
	o.Dial, o.TranscriptLimit = s.dialer(h.at(), counted), conversationMax
	if s.pool.permits.Held(team) > int64(s.c.MaxConnections/8) {
		o.Timeouts.Greeting = atMost(o.Timeouts.Greeting, s.shortGreeting)
	}
	if h.mode == smtpclient.TLSOpportunistic && s.hosts.plainOnly(h.at(), s.shape.now()) {
		o.TLS, plain = smtpclient.TLSNone, true
	}
	c, err = smtpclient.Dial(ctx, h.addr, o)
	if e, ok := errors.AsType[*smtpclient.Error](err); ok && e.RetryPlain && ctx.Err() == nil {
		s.hosts.rememberPlain(h.at(), s.shape.now())
		o.TLS, plain = smtpclient.TLSNone, true
		c, err = smtpclient.Dial(ctx, h.addr, o)
	}
	return c, plain, err
}

func describeTLS(t smtpclient.TLSState) string {
	switch {
	case !t.On():
		return ""
	case t.Method == smtpclient.MethodDANEEE, t.Method == smtpclient.MethodDANETA:
		return t.Version + " " + t.Cipher + ", certificate verified by DANE"
	case t.Verified:
		return t.Version + " " + t.Cipher + ", certificate verified"
	}
	return t.Version + " " + t.Cipher + ", certificate not verified"
}

// atMost returns the smaller of a timeout and a limit. A timeout of 0 means the default, which is longer than the
// limit.
func atMost(d, limit time.Duration) time.Duration {
	if d == 0 {
		return limit
	}
	return min(d, limit)
}
