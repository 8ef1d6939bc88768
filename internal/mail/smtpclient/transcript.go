package smtpclient

import (
	"bytes"
	"strconv"
	"time"
)

const (
	defaultTranscript = 16 << 10
	minTranscript     = 1 << 10
	maxTranscriptLine = 600 // maximum number of bytes recorded from one line
)

// transcript records an SMTP session as lines such as "12 C: EHLO a.example". The number is the time in milliseconds, C
// is the client, S is the host, and * marks a note added by this package. A transcript holds at most limit bytes. If a
// transcript would be too long, lines in the middle are omitted, because the end contains the reason for a failure.
//
// The first part, which ends at index opened, covers the greeting, TLS and authentication. This part is kept for as
// long as the connection is open, and is followed by the lines for the current message.
type transcript struct {
	limit   int
	start   time.Time
	head    []byte
	tail    []byte // lines recorded once head is full; new lines replace the oldest ones
	skipped int    // number of lines omitted between head and tail
	opened  int
}

func newTranscript(limit int, now time.Time) *transcript {
	if limit <= 0 {
		limit = defaultTranscript
	}
	return &transcript{limit: max(limit, minTranscript), start: now, head: make([]byte, 0, 1024)}
}

// next starts recording another message.
func (t *transcript) next(now time.Time) {
	t.head = t.head[:t.opened]
	t.tail = t.tail[:0]
	t.skipped = 0
	t.start = now
}

// endOpening marks the end of the connection's opening in the transcript. An opening that would leave too little space
// for messages is shortened.
func (t *transcript) endOpening() {
	t.opened = min(len(t.head), t.limit/4)
	if i := bytes.LastIndexByte(t.head[:t.opened], '\n'); i >= 0 && t.opened < len(t.head) {
		t.opened = i + 1
	}
}

// line records one line with the label who, which is 'C', 'S' or '*'. Control characters and invalid UTF-8 are
// replaced.
func (t *transcript) line(who byte, text []byte) {
	if t.skipped == 0 && len(t.tail) == 0 {
		mark := len(t.head)
		t.head = t.appendLine(t.head, who, text)
		if len(t.head) <= t.limit*3/4 {
			return
		}
		t.tail = append(t.tail, t.head[mark:]...)
		t.head = t.head[:mark]
		return
	}
	t.tail = t.appendLine(t.tail, who, text)
	for len(t.tail) > t.limit/4-40 {
		i := bytes.IndexByte(t.tail, '\n')
		if i == len(t.tail)-1 {
			return
		}
		t.tail = t.tail[:copy(t.tail, t.tail[i+1:])]
		t.skipped++
	}
}

func (t *transcript) note(text string) { t.line('*', []byte(text)) }

func (t *transcript) appendLine(b []byte, who byte, text []byte) []byte {
	b = strconv.AppendInt(b, time.Since(t.start).Milliseconds(), 10)
	b = append(b, ' ', who, ':', ' ')
	limit := min(maxTranscriptLine, t.limit/8)
	if len(text) <= limit && plainText(text) {
		b = append(b, text...)
	} else {
		b = append(b, cleanText(text, limit)...)
		if len(text) > limit {
			b = append(b, "…"...)
		}
	}
	return append(b, '\n')
}

// String returns all recorded lines.
func (t *transcript) String() string {
	if len(t.tail) == 0 {
		return string(t.head)
	}
	b := make([]byte, 0, t.limit)
	b = append(b, t.head...)
	if t.skipped > 0 {
		b = append(b, "… "...)
		b = strconv.AppendInt(b, int64(t.skipped), 10)
		b = append(b, " lines left out\n"...)
	}
	return string(append(b, t.tail...))
}
