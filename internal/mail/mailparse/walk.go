package mailparse

import (
	"bytes"
	"strings"

	"github.com/postrider/postrider/internal/mail/decode"
)

// walker parses the body of a message in one pass, from delimiter to delimiter. A delimiter of an outer multipart ends
// all open parts within that multipart.
type walker struct {
	*parser
	at    int // current index in raw
	stack []frame
	// innermost maps a boundary to the index of the innermost open frame with that boundary.
	innermost map[string]int
	parts     int
	view      view // the view of all content outside multiparts
}

// frame is a multipart that has not ended yet.
type frame struct {
	head     partHead
	kind     kind
	boundary string
	outer    int  // index of the outer frame with the same boundary, or -1
	start    int  // index in raw at which the content starts
	begun    bool // whether the multipart has at least one part
	closed   bool
	view     view
}

// kind is the relation between the parts of a multipart.
type kind uint8

const (
	mixed kind = iota
	alternative
	related
	digest
)

func kindOf(mediaType string) kind {
	switch mediaType {
	case "multipart/alternative":
		return alternative
	case "multipart/related":
		return related
	case "multipart/digest":
		return digest
	}
	return mixed
}

// walk parses the body that begins at w.at and is described by head.
func (w *walker) walk(head partHead) {
	for {
		w.open(head)
		found := false
		for !found {
			closing, ok := w.nextDelimiter()
			if !ok {
				w.pop(0, len(w.raw))
				return
			}
			found = !closing
		}
		if w.parts >= maxParts {
			w.leftOver()
			return
		}
		head = w.partHeader()
	}
}

// open starts parsing the part at w.at. A multipart is pushed onto the stack, while a part without subparts is parsed
// to its end.
func (w *walker) open(head partHead) {
	if head.mediaType == "" && len(w.stack) > 0 && w.stack[len(w.stack)-1].kind == digest {
		head.mediaType = "message/rfc822"
	}
	if strings.HasPrefix(head.mediaType, "multipart/") {
		if len(w.stack) == maxDepth {
			w.defect("The parts are nested more than 64 deep; what is deeper was kept as one file.")
		} else if boundary := w.boundary(head); boundary != "" {
			outer, hides := w.innermost[boundary]
			if !hides {
				outer = -1
			}
			w.out.OpensWithPart = w.out.OpensWithPart || len(w.stack) == 0 && w.opensWith(boundary)
			w.innermost[boundary] = len(w.stack)
			w.stack = append(w.stack, frame{head: head, kind: kindOf(head.mediaType), boundary: boundary, outer: outer,
				start: w.at})
			return
		} else {
			head.mediaType = "text/plain"
		}
	}
	start := w.at
	w.at, _, _, _ = w.findDelimiter(start)
	w.leaf(head, w.content(start, w.at))
}

// boundary returns the boundary of a multipart, or guesses it if none is given or if the given boundary does not occur
// in the message.
func (w *walker) boundary(head partHead) string {
	b := head.boundary
	if b != "" && len(b) <= maxLine && (len(w.stack) > 0 || bytes.Contains(w.raw[w.at:], []byte("--"+b))) {
		return b
	}
	w.defect("A multipart does not name the boundary between its parts, or names a wrong one.")
	const window = 4 << 10
	area := w.raw[w.at:min(len(w.raw), w.at+window)]
	for at := 0; at < len(area); {
		end, next := decode.LineEnd(area, at)
		line := bytes.TrimRight(area[at:end], " \t")
		if len(line) > len("--") && bytes.HasPrefix(line, []byte("--")) && startsField(area, next) {
			guess := string(line[2:])
			if _, taken := w.innermost[guess]; !taken {
				return guess
			}
		}
		at = next
	}
	return ""
}

// opensWith reports whether the first line that is not empty is a delimiter with a boundary.
func (w *walker) opensWith(boundary string) bool {
	for at := w.at; at < len(w.raw); {
		end, next := decode.LineEnd(w.raw, at)
		if line := bytes.TrimRight(w.raw[at:end], " \t\r"); len(line) > 0 {
			return string(line) == "--"+boundary
		}
		at = next
	}
	return false
}

// nextDelimiter moves w.at past the next delimiter that belongs to an open multipart, and ends all multiparts nested
// within that multipart.
func (w *walker) nextDelimiter() (closing, ok bool) {
	start, next, index, closing := w.findDelimiter(w.at)
	w.at = next
	if index < 0 {
		return false, false
	}
	w.pop(index+1, start)
	f := &w.stack[index]
	if !closing {
		if f.closed {
			w.defect("A multipart goes on after its end.")
		}
		f.begun = true
		return false, true
	}
	f.closed = true
	if f.outer >= 0 {
		// An outer multipart has the same boundary, so later delimiters belong to that multipart.
		w.pop(index, start)
	}
	return true, true
}

// findDelimiter searches for the next delimiter line, beginning at index from, which must be the start of a line.
// findDelimiter returns the start of the delimiter line, the start of the line after it, and the index of its frame. If
// there is no such line, the results are the end of raw and -1.
func (w *walker) findDelimiter(from int) (start, next, index int, closing bool) {
	if len(w.stack) == 0 {
		return len(w.raw), len(w.raw), -1, false
	}
	for at := from; at < len(w.raw); at = next {
		if !bytes.HasPrefix(w.raw[at:], []byte("--")) {
			n := bytes.Index(w.raw[at:], []byte("\n--"))
			if n < 0 {
				break
			}
			at += n + 1
		}
		var end int
		end, next = decode.LineEnd(w.raw, at)
		if index, closing = w.delimiter(w.raw[at:end]); index >= 0 {
			return at, next, index, closing
		}
	}
	return len(w.raw), len(w.raw), -1, false
}

// delimiter returns the index of the frame that a delimiter line belongs to, or -1 if the line is not a delimiter. The
// line must begin with two hyphens.
func (w *walker) delimiter(line []byte) (index int, closing bool) {
	line = bytes.TrimRight(line[len("--"):], " \t\r")
	if index, ok := w.innermost[string(line)]; ok {
		return index, false
	}
	if line, closing = bytes.CutSuffix(line, []byte("--")); closing {
		if index, ok := w.innermost[string(bytes.TrimRight(line, " \t"))]; ok {
			return index, true
		}
	}
	return -1, false
}

// content returns the bytes between a part's header and the next delimiter. The line ending before a delimiter belongs
// to the delimiter.
func (w *walker) content(start, end int) []byte {
	c := w.raw[start:end]
	if end < len(w.raw) {
		c = bytes.TrimSuffix(c, []byte("\n"))
		c = bytes.TrimSuffix(c, []byte("\r"))
	}
	return c
}

// partHeader parses the part header at w.at, which may be cut short by a delimiter.
func (w *walker) partHeader() partHead {
	var head partHead
	body, stray := readHeader(w.raw, w.at, func(line []byte) bool {
		index, _ := w.delimiter(line)
		return index >= 0
	}, head.take)
	if stray {
		w.defect("The header of a part has a line that is no field.")
	}
	w.at = body
	return head
}

// pop closes all open multiparts at or above the given stack index; their content ends at offset end in raw. A
// multipart without parts is treated as text.
func (w *walker) pop(index, end int) {
	for len(w.stack) > index {
		f := w.stack[len(w.stack)-1]
		w.stack = w.stack[:len(w.stack)-1]
		if f.outer >= 0 {
			w.innermost[f.boundary] = f.outer
		} else {
			delete(w.innermost, f.boundary)
		}
		if !f.begun {
			w.defect("A multipart has no parts.")
			f.head.mediaType = "text/plain"
			w.leaf(f.head, w.content(min(f.start, end), end))
			continue
		}
		if !f.closed {
			w.defect("A multipart does not end.")
		}
		w.add(f.view)
	}
}

// leftOver stores everything after the last allowed part as one file.
func (w *walker) leftOver() {
	w.defect("The message has more than 1,000 parts; the rest was kept as one file.")
	w.out.Files = append(w.out.Files, File{ContentType: octetStream, Disposition: "attachment", Content: w.raw[w.at:]})
	for i := range w.stack {
		w.stack[i].closed = true
	}
	w.pop(0, len(w.raw))
}
