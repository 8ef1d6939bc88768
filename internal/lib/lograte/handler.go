package lograte

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// Burst is the number of lines with the same cause that a [Handler] writes in each period of length Every.
	Burst = 5
	// maxCauses is the maximum number of causes that a Handler distinguishes among errors, and among other lines. All
	// further causes of errors count as one, and so do those of other lines.
	maxCauses = 200
	maxClass  = 300 // maximum number of bytes of an error's class
)

// Handler is a slog.Handler that limits lines with the same cause, such as the failures of thousands of jobs because of
// one wrong key. In each period of length Every, a Handler writes the first Burst lines of a cause. When the period
// ends, it writes the last suppressed line with the attribute more_like_it, the number of the other suppressed lines.
//
// Lines have the same cause if they have the same level, message and attribute "kind", and errors of the same class.
// The class is the error's text without ids, numbers, addresses, host names, paths and quoted text. A Handler limits
// warnings, errors, and all lines with an error. Other lines always pass, and so do lines with a context of
// [Unlimited].
type Handler struct {
	next   slog.Handler
	shared *causes
}

// causes holds the current period of each cause. The handlers that WithAttrs and WithGroup derive share one causes.
type causes struct {
	mu      sync.Mutex
	current [2]map[cause]*period // of other lines, and of errors, which a flood of warnings must not displace
}

type cause struct {
	level                slog.Level
	message, kind, class string
}

// period counts the lines of a cause since the period began.
type period struct {
	written, suppressed int
	last                slog.Record // the last suppressed line
	to                  slog.Handler
}

// NewHandler returns a Handler that writes to next.
func NewHandler(next slog.Handler) *Handler {
	return &Handler{next, &causes{current: [2]map[cause]*period{{}, {}}}}
}

// Enabled implements slog.Handler.
func (h *Handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Handler{h.next.WithAttrs(attrs), h.shared}
}

// WithGroup implements slog.Handler.
func (h *Handler) WithGroup(name string) slog.Handler {
	return &Handler{h.next.WithGroup(name), h.shared}
}

type unlimitedKey struct{}

// Unlimited returns a context whose lines a [Handler] does not limit. Use it for lines that are the only copy of a
// text.
func Unlimited(ctx context.Context) context.Context {
	return context.WithValue(ctx, unlimitedKey{}, true)
}

// Handle implements slog.Handler.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	if ctx.Value(unlimitedKey{}) != nil {
		return h.next.Handle(ctx, r)
	}
	if c, ok := causeOf(&r); ok && !h.shared.allow(c, &r, h.next) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

// allow reports whether a line may be written now.
func (s *causes) allow(c cause, r *slog.Record, to slog.Handler) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	current := s.current[0]
	if r.Level >= slog.LevelError {
		current = s.current[1]
	}
	p := current[c]
	if p == nil && len(current) >= maxCauses {
		c = cause{}
		p = current[c]
	}
	if p == nil {
		p = &period{}
		current[c] = p
		time.AfterFunc(Every, func() { s.end(current, c) })
	}
	if p.written < Burst {
		p.written++
		return true
	}
	p.suppressed++
	p.last, p.to = r.Clone(), to
	return false
}

// end ends a period. If lines were suppressed, end writes the last one, and the next period begins.
func (s *causes) end(current map[cause]*period, c cause) {
	s.mu.Lock()
	p := current[c]
	if p.suppressed == 0 {
		delete(current, c)
		s.mu.Unlock()
		return
	}
	ended := *p
	*p = period{written: 1}
	time.AfterFunc(Every, func() { s.end(current, c) })
	s.mu.Unlock()
	ended.writeLast()
}

// writeLast writes the last suppressed line with the number of the others.
func (p *period) writeLast() {
	if n := p.suppressed - 1; n > 0 {
		p.last.AddAttrs(slog.Int("more_like_it", n))
	}
	p.to.Handle(context.Background(), p.last)
}

// Flush writes the last suppressed line of each cause now. Call Flush when the program ends, before the periods do.
func (h *Handler) Flush() {
	h.shared.mu.Lock()
	var ended []period
	for _, current := range h.shared.current {
		for _, p := range current {
			if p.suppressed > 0 {
				ended = append(ended, *p)
				p.suppressed = 0
			}
		}
	}
	h.shared.mu.Unlock()
	slices.SortFunc(ended, func(a, b period) int { return a.last.Time.Compare(b.last.Time) })
	for i := range ended {
		ended[i].writeLast()
	}
}

// causeOf returns the cause of a line. It returns false if the line is not limited.
func causeOf(r *slog.Record) (c cause, ok bool) {
	c.level, c.message = r.Level, r.Message
	ok = r.Level >= slog.LevelWarn
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "kind":
			c.kind = a.Value.String()
		case "error":
			if err, is := a.Value.Any().(error); is && err != nil {
				c.class, ok = classOf(err.Error()), true
			}
		}
		return true
	})
	return c, ok
}

// classOf returns an error's text without the parts that differ between errors with the same cause: quoted text, and
// words that contain a digit, an at sign, a slash or a dot.
func classOf(text string) string {
	var b strings.Builder
	for text != "" && b.Len() < maxClass {
		if quote := text[0]; quote == '"' || quote == '`' {
			if end := strings.IndexByte(text[1:], quote); end >= 0 {
				b.WriteString("…")
				text = text[end+2:]
				continue
			}
		}
		end := strings.IndexAny(text, " \t\n\"`(),;=")
		switch {
		case end < 0:
			end = len(text)
		case end == 0:
			end = 1
		}
		if word := text[:end]; strings.ContainsAny(strings.TrimRight(word, ".:"), "0123456789@/.") {
			b.WriteString("…")
		} else {
			b.WriteString(word)
		}
		text = text[end:]
	}
	return b.String()
}
