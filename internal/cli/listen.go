package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/postrider/postrider/internal/platform/signing"
)

const (
	forwardTime = 15 * time.Second // timeout for posting an event, the same as for the server's webhooks
	silence     = 45 * time.Second // a stream without data for this long is closed
	lineMax     = 16 << 20         // maximum length of a line in the event stream, in bytes
	rememberMax = 10_000           // maximum number of message ids to remember
	waitMax     = 10 * time.Second // longest wait between connection attempts
)

const secretPrefix = "whsec_"

// listener shows a team's events as they happen and forwards them like a webhook.
type listener struct {
	e       *env
	source  string // URL of the stream
	key     string
	forward string // URL for events; if "", they are only shown
	secret  []byte
	client  *http.Client // HTTP client that posts events

	last  string // highest id of a shown message
	seen  map[string]bool
	order []string // ids in seen, oldest first
}

func listenCommand() command {
	return command{use: "listen", group: groupEmail, short: "show events as they happen and forward them",
		long: "Shows a team's events as they happen. With --forward-to, it also posts them to a URL that the server " +
			"cannot reach, such as one on a developer's machine, signed like a webhook.",
		example: "postrider listen --forward-to http://localhost:4000/hook --events email.delivered,email.bounced",
		define: func(flags *pflag.FlagSet) runner {
			o := listenOptions{}
			base := addURLFlag(flags)
			flags.StringVar(&o.key, "api-key", "",
				"API `key` with full access; the default is POSTRIDER_API_KEY or RESEND_API_KEY")
			flags.StringVar(&o.forward, "forward-to", "", "`URL` that events are posted to; by default, they are only shown")
			flags.StringVar(&o.names, "events", "", "event `types`, separated by commas; the default is all")
			flags.StringVar(&o.secret, "secret", "", "signing `secret` (whsec_...); the default is a new one")
			return func(ctx context.Context, e *env, _ []string) error {
				o.base, o.key = baseURL(e, *base), e.apiKey(o.key)
				return listen(ctx, e, o)
			}
		}}
}

// addURLFlag adds the flag for the URL of a node's API.
func addURLFlag(flags *pflag.FlagSet) *string {
	return flags.String("url", "", "`URL` of the API; the default is RESEND_BASE_URL, or else http://127.0.0.1:3000")
}

// baseURL returns the URL given by a flag, or else the one in the environment, or else that of `postrider dev`.
func baseURL(e *env, given string) string {
	return cmp.Or(given, e.getenv("RESEND_BASE_URL"), "http://127.0.0.1:3000")
}

// listenOptions are the flags of the command listen.
type listenOptions struct{ base, key, forward, names, secret string }

// listen shows a team's events and forwards them to a URL that the server cannot reach, such as a URL on a developer's
// machine.
func listen(ctx context.Context, e *env, o listenOptions) error {
	l, secret, err := newListener(e, o)
	if err != nil {
		return err
	}
	if l.forward != "" {
		if e.json {
			l.line(struct {
				Object    string `json:"object"`
				ForwardTo string `json:"forward_to"`
				Secret    string `json:"secret"`
			}{"forwarding", l.forward, secret})
		} else {
			fmt.Fprintf(e.out, "Forwarding events to %s\nSigning secret: %s\n", l.forward, secret)
		}
	}
	for wait := time.Second; ; wait = min(2*wait, waitMax) {
		connected, err := l.stream(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if final, ok := errors.AsType[refusal](err); ok {
			return final
		}
		if connected {
			wait = time.Second
		}
		fmt.Fprintf(e.errOut, "The stream ended (%v); reconnecting.\n", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

func newListener(e *env, o listenOptions) (l *listener, secret string, err error) {
	if o.key == "" {
		return nil, "", errNoKey
	}
	source, err := url.Parse(strings.TrimRight(o.base, "/") + "/webhooks/listen")
	if err != nil || source.Host == "" {
		return nil, "", usagef("--url %q must be a URL such as http://127.0.0.1:3000", o.base)
	}
	if o.names != "" {
		source.RawQuery = url.Values{"events": {o.names}}.Encode()
	}
	if to, err := url.Parse(o.forward); o.forward != "" && (err != nil || to.Host == "" || to.Scheme != "http" &&
		to.Scheme != "https") {
		return nil, "", usagef("--forward-to %q must be a URL such as http://localhost:3000/webhook", o.forward)
	}
	if secret = o.secret; secret == "" {
		fresh := make([]byte, 32)
		rand.Read(fresh)
		secret = secretPrefix + base64.StdEncoding.EncodeToString(fresh)
	}
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
	if err != nil || len(raw) == 0 {
		return nil, "", usageError("--secret must be whsec_ followed by base64")
	}
	noRedirects := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &listener{e: e, source: source.String(), key: o.key, forward: o.forward, secret: raw, seen: map[string]bool{},
		client: &http.Client{Timeout: forwardTime, CheckRedirect: noRedirects}}, secret, nil
}

// errNoKey means that no API key was given.
const errNoKey = usageError("set an API key with --api-key or the environment variable POSTRIDER_API_KEY")

// refusal is an error response to a request that would fail again.
type refusal string

func (r refusal) Error() string { return string(r) }

// stream connects to the server and reads events until the stream ends. connected reports whether the connection
// succeeded.
func (l *listener) stream(ctx context.Context) (connected bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	alive := time.AfterFunc(silence, func() { cancel(errors.New("the server sent nothing for too long")) })
	defer alive.Stop()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, l.source, nil)
	if err != nil {
		return false, fmt.Errorf("request the stream: %w", err)
	}
	r.Header.Set("Authorization", "Bearer "+l.key)
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Set("User-Agent", "postrider-listen/"+Version)
	if l.last != "" {
		r.Header.Set("Last-Event-ID", l.last)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return false, ended(ctx, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 2000))
		said := fmt.Sprintf("the server answered %s: %s", answer.Status, bytes.TrimSpace(text))
		if s := answer.StatusCode; s/100 == 4 && s != http.StatusTooManyRequests && s != http.StatusRequestTimeout {
			return false, refusal(said)
		}
		return false, errors.New(said)
	}
	l.e.note("Watching for events. Stop with Ctrl-C.")
	return true, l.events(ctx, answer.Body, func() { alive.Reset(silence) })
}

// ended returns the context's cancellation cause, or err if the context was not canceled.
func ended(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// events reads server-sent events that have one data line each, and calls alive for every line of the stream.
func (l *listener) events(ctx context.Context, body io.Reader, alive func()) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, lineMax)
	var id, event, data string
	for lines.Scan() {
		alive()
		name, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case lines.Text() == "":
			if event != "" {
				l.handle(ctx, id, event, data)
				// The loop does not read heartbeats while it forwards an event, so the timeout is restarted after forwarding.
				alive()
			}
			id, event, data = "", "", ""
		case name == "id":
			id = value
		case name == "event":
			event = value
		case name == "data":
			data = value
		}
	}
	if err := lines.Err(); err != nil {
		return ended(ctx, fmt.Errorf("read the stream: %w", err))
	}
	return errors.New("the server closed it")
}

// eventObject is an event as a line of JSON.
type eventObject struct {
	Object    string          `json:"object"`
	ID        string          `json:"id"`
	Type      string          `json:"type"`
	At        time.Time       `json:"at"`
	Payload   json.RawMessage `json:"payload"`
	Forwarded string          `json:"forwarded,omitempty"` // result of forwarding it
}

// line writes a line of JSON. An event that is not JSON is an error of the server, and is left out.
func (l *listener) line(v any) {
	if err := json.NewEncoder(l.e.out).Encode(v); err != nil {
		l.e.note("an event cannot be shown: %v", err)
	}
}

// handle shows an event and forwards it, unless the event was already shown before the stream was interrupted.
func (l *listener) handle(ctx context.Context, id, event, data string) {
	if event == "gap" {
		if l.e.json {
			l.line(map[string]string{"object": "gap"})
		} else {
			fmt.Fprintln(l.e.out, "Some events may have been missed while disconnected.")
		}
		return
	}
	if id == "" || l.seen[id] {
		return
	}
	seen := eventObject{Object: "event", ID: id, Type: event, At: time.Now().UTC(), Payload: json.RawMessage(data)}
	if l.forward != "" {
		seen.Forwarded = l.deliver(ctx, id, data)
		if ctx.Err() != nil {
			return // the request was interrupted, so the event may not have been delivered
		}
	}
	if l.e.json {
		l.line(seen)
	} else {
		fmt.Fprintf(l.e.out, "%s  %-26s %s  %s\n", seen.At.Local().Format(time.TimeOnly), event, id,
			cmp.Or(seen.Forwarded, data))
	}
	l.last = max(l.last, id)
	l.seen[id] = true
	if l.order = append(l.order, id); len(l.order) > rememberMax {
		delete(l.seen, l.order[0])
		l.order = l.order[1:]
	}
}

// deliver posts a payload once, signed in the same way as the server's webhooks, and returns a description of the
// result.
func (l *listener) deliver(ctx context.Context, id, data string) string {
	start := time.Now()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, l.forward, strings.NewReader(data))
	if err != nil {
		return err.Error()
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "Postrider-Webhooks/"+Version)
	signing.Sign(r.Header, id, start, data, l.secret)
	answer, err := l.client.Do(r)
	if err != nil {
		return "failed: " + err.Error()
	}
	defer answer.Body.Close()
	io.Copy(io.Discard, io.LimitReader(answer.Body, 64<<10)) // reading the body allows the connection to be reused
	return fmt.Sprintf("%s in %v", answer.Status, time.Since(start).Round(time.Millisecond))
}
