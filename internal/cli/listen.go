package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/outbound/webhooks"
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

const listenUsage = "use: postrider listen --forward-to URL [--api-key KEY] [--url URL] [--events a,b]"

// listen shows a team's events and forwards them to a URL that the server cannot reach, such as a URL on a developer's
// machine.
func listen(ctx context.Context, e *env, args []string) error {
	l, secret, err := newListener(e, args)
	if err != nil {
		return err
	}
	if l.forward != "" {
		fmt.Fprintf(e.out, "Forwarding events to %s\nSigning secret: %s\n", l.forward, secret)
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

func newListener(e *env, args []string) (l *listener, secret string, err error) {
	flags := flag.NewFlagSet("listen", flag.ContinueOnError)
	flags.SetOutput(e.errOut)
	base := flags.String("url", cmp.Or(e.getenv("RESEND_BASE_URL"), "http://127.0.0.1:3000"),
		"URL of the API; the default is RESEND_BASE_URL")
	key := flags.String("api-key", "",
		"API key with full access; the default is POSTRIDER_API_KEY or RESEND_API_KEY")
	forward := flags.String("forward-to", "", "URL that events are posted to; by default, they are only shown")
	names := flags.String("events", "", "event types, separated by commas; the default is all")
	given := flags.String("secret", "", "signing secret (whsec_...); the default is a new one")
	flags.Usage = flagUsage(flags, listenUsage)
	if err := flags.Parse(args); err != nil {
		return nil, "", err
	}
	if flags.NArg() > 0 {
		return nil, "", fmt.Errorf("unexpected %q; %s", flags.Arg(0), listenUsage)
	}
	if *key = e.apiKey(*key); *key == "" {
		return nil, "", errors.New("set an API key with --api-key or the environment variable POSTRIDER_API_KEY")
	}
	source, err := url.Parse(strings.TrimRight(*base, "/") + "/webhooks/listen")
	if err != nil || source.Host == "" {
		return nil, "", fmt.Errorf("--url %q must be a URL such as http://127.0.0.1:3000", *base)
	}
	if *names != "" {
		source.RawQuery = url.Values{"events": {*names}}.Encode()
	}
	if to, err := url.Parse(*forward); *forward != "" && (err != nil || to.Host == "" || to.Scheme != "http" &&
		to.Scheme != "https") {
		return nil, "", fmt.Errorf("--forward-to %q must be a URL such as http://localhost:3000/webhook", *forward)
	}
	if secret = *given; secret == "" {
		fresh := make([]byte, 32)
		rand.Read(fresh)
		secret = secretPrefix + base64.StdEncoding.EncodeToString(fresh)
	}
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
	if err != nil || len(raw) == 0 {
		return nil, "", errors.New("--secret must be whsec_ followed by base64")
	}
	noRedirects := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &listener{e: e, source: source.String(), key: *key, forward: *forward, secret: raw, seen: map[string]bool{},
		client: &http.Client{Timeout: forwardTime, CheckRedirect: noRedirects}}, secret, nil
}

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
	fmt.Fprintln(l.e.out, "Watching for events. Stop with Ctrl-C.")
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

// handle shows an event and forwards it, unless the event was already shown before the stream was interrupted.
func (l *listener) handle(ctx context.Context, id, event, data string) {
	if event == "gap" {
		fmt.Fprintln(l.e.out, "Some events may have been missed while disconnected.")
		return
	}
	if id == "" || l.seen[id] {
		return
	}
	line := fmt.Sprintf("%s  %-26s %s", time.Now().Format(time.TimeOnly), event, id)
	if l.forward == "" {
		fmt.Fprintf(l.e.out, "%s  %s\n", line, data)
	} else {
		result := l.deliver(ctx, id, data)
		if ctx.Err() != nil {
			return // the request was interrupted, so the event may not have been delivered
		}
		fmt.Fprintf(l.e.out, "%s  %s\n", line, result)
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
	webhooks.Sign(r.Header, id, start, data, l.secret)
	answer, err := l.client.Do(r)
	if err != nil {
		return "failed: " + err.Error()
	}
	defer answer.Body.Close()
	io.Copy(io.Discard, io.LimitReader(answer.Body, 64<<10)) // reading the body allows the connection to be reused
	return fmt.Sprintf("%s in %v", answer.Status, time.Since(start).Round(time.Millisecond))
}
