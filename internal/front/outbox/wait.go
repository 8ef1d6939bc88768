package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/sending/delivery/capture"
)

const (
	heartbeat    = 15 * time.Second // time between comment lines in an idle stream
	writeTimeout = 10 * time.Second // time limit for the client to receive one write
	maxRecent    = 5                // emails in the response to a request that waited in vain
)

// reserve counts a request that waits. The caller must call release when the request no longer waits.
func (s *server) reserve() (release func(), err error) {
	select {
	case s.waiting <- struct{}{}:
		return func() { <-s.waiting }, nil
	default:
		return nil, fault.New(fault.TooFast, "", "%d requests wait for emails already, which is the maximum. End some of "+
			"them first.", maxWaiting)
	}
}

// watch returns the query parameters of a request that waits, its filter, and the position from which on it gets
// emails: the first one if the filter says since when, and otherwise the present one. The id last, unless it is "",
// takes the place of the parameter since. The caller must call release when the request no longer waits.
func (s *server) watch(r *http.Request, last string, others ...string) (query url.Values, f capture.Filter,
	at capture.Position, release func(), err error) {
	if query, err = readQuery(r, append(slices.Clip(filterNames), others...)...); err != nil {
		return nil, f, 0, nil, err
	}
	f, err = capture.ParseFilter(query.Get("to"), query.Get("from"), query.Get("subject"),
		cmp.Or(last, query.Get("since")))
	if err == nil && !f.HasSince() {
		at, err = s.Outbox.Position(r.Context())
	}
	if err != nil {
		return nil, f, 0, nil, err
	}
	release, err = s.reserve()
	return query, f, at, release, err
}

// wait answers with the first email that the filter selects, as soon as it has arrived.
func (s *server) wait(w http.ResponseWriter, r *http.Request) error {
	query, f, at, release, err := s.watch(r, "", "timeout")
	if err != nil {
		return err
	}
	defer release()
	timeout, err := readTimeout(query)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	for {
		var all []capture.Message
		all, at, err = s.Outbox.Next(ctx, f, at)
		if errors.Is(err, context.DeadlineExceeded) {
			return s.answerTimeout(w, r, query, timeout)
		}
		if err != nil {
			return err
		}
		for _, m := range all {
			err := s.answerEmail(w, r, m)
			if fault.KindOf(err) != fault.NotFound { // a deleted email is skipped
				return err
			}
		}
	}
}

// timeoutWire is the response to a request that waited in vain.
type timeoutWire struct {
	StatusCode int               `json:"statusCode"`
	Message    string            `json:"message"`
	Name       string            `json:"name"`
	Filters    map[string]string `json:"filters"`
	Recent     []itemWire        `json:"recent"`
}

func (s *server) answerTimeout(w http.ResponseWriter, r *http.Request, query url.Values, timeout time.Duration) error {
	recent, _, err := s.Outbox.List(r.Context(), capture.Filter{}, "", maxRecent)
	if err != nil {
		return err
	}
	body := timeoutWire{StatusCode: http.StatusRequestTimeout, Name: "timeout", Filters: map[string]string{}}
	var filters []string
	for _, name := range filterNames {
		if query.Has(name) {
			body.Filters[name] = query.Get(name)
			filters = append(filters, name+"="+query.Get(name))
		}
	}
	what := "No email"
	if len(filters) > 0 {
		what = "No email with " + strings.Join(filters, " ")
	}
	body.Message = fmt.Sprintf("%s arrived within %s. The field `recent` has the newest emails in the outbox. To get an "+
		"email that arrived before the request, set `since`.", what, timeout)
	for _, m := range recent {
		body.Recent = append(body.Recent, newItem(m))
	}
	return s.answer(w, r, body.StatusCode, body)
}

// events answers with a stream of server-sent events, one for each new email that the filter selects. Browsers send the
// header Last-Event-ID when they reconnect.
func (s *server) events(w http.ResponseWriter, r *http.Request) error {
	_, f, at, release, err := s.watch(r, r.Header.Get("Last-Event-ID"))
	if err != nil {
		return err
	}
	defer release()
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("X-Accel-Buffering", "no") // proxies must not buffer the stream
	text := ": watching\n\n"
	for send(w, text) == nil {
		if text, at, err = s.nextEvents(r.Context(), f, at); err != nil {
			if r.Context().Err() == nil && !errors.Is(err, capture.ErrClosed) {
				s.Log.Warn("the stream of captured emails ended", "error", err)
			}
			break
		}
	}
	return nil
}

// nextEvents waits for the next emails and returns their events, or a comment line after a while.
func (s *server) nextEvents(ctx context.Context, f capture.Filter, at capture.Position) (string, capture.Position,
	error) {
	limited, cancel := context.WithTimeout(ctx, heartbeat)
	defer cancel()
	all, at, err := s.Outbox.Next(limited, f, at)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return ": still there\n\n", at, nil
	}
	if err != nil {
		return "", at, err
	}
	var b strings.Builder
	for _, m := range all {
		data, err := json.Marshal(newItem(m))
		if err != nil {
			return "", at, err
		}
		fmt.Fprintf(&b, "id: %s\nevent: captured\ndata: %s\n\n", m.ID, data)
	}
	return b.String(), at, nil
}

// send writes and flushes a piece of text.
func send(w http.ResponseWriter, text string) error {
	rc := http.NewResponseController(w)
	if err := rc.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := io.WriteString(w, text); err != nil {
		return err
	}
	return rc.Flush()
}
