package csvfile

import "bufio"

// tape keeps the bytes of a quoted field, so that the Reader can read them again as records of their own.
//
// A tape keeps at most a few times MaxRecord bytes. Reading stays linear: between the quote that opens a field and the
// quote at which the field ends incorrectly, the text has only doubled quotes. If that text is read again, it opens no
// field that extends beyond it.
type tape struct {
	kept []byte // bytes that were read from the source; next returns those from pos on before it reads more
	pos  int

	on        bool // whether bytes are kept
	from      int  // position in kept at which the recording began
	at, lines int64
}

// start begins to keep bytes; at and lines are the Reader's position, for the caller of rewind.
func (t *tape) start(at, lines int64) {
	switch {
	case t.pos == len(t.kept):
		t.kept, t.pos = t.kept[:0], 0
	case t.pos > MaxRecord:
		t.kept, t.pos = t.kept[:copy(t.kept, t.kept[t.pos:])], 0
	}
	t.on, t.from, t.at, t.lines = true, t.pos, at, lines
}

// stop ends the recording.
func (t *tape) stop() { t.on = false }

// rewind ends the recording and makes next return the kept bytes again.
func (t *tape) rewind() { t.on, t.pos = false, t.from }

// next returns the next byte of the tape or, after its end, of the source.
func (t *tape) next(source *bufio.Reader) (byte, error) {
	if t.pos < len(t.kept) {
		t.pos++
		return t.kept[t.pos-1], nil
	}
	c, err := source.ReadByte()
	if err == nil && t.on {
		t.kept = append(t.kept, c)
		t.pos++
	}
	return c, err
}

// peek returns the byte that next will return.
func (t *tape) peek(source *bufio.Reader) (byte, error) {
	if t.pos < len(t.kept) {
		return t.kept[t.pos], nil
	}
	b, err := source.Peek(1)
	if err != nil {
		return 0, err
	}
	return b[0], nil
}
