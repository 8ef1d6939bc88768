package links

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

// Writing a shared page allocates memory for the email's HTML and text only once.
func TestPageIsWrittenInChunks(t *testing.T) {
	const size = 8 << 20
	text := strings.Repeat(`"`, size)
	p := &sharedPage{html: func(w io.Writer) error { _, err := io.WriteString(w, text); return err }, text: text}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := p.write(io.Discard); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 2*size+size/2 { // each text is allocated once, in chunks
		t.Errorf("a page of %d bytes allocates %d", 2*size, n)
	}
}

// Escaping in chunks works wherever the chunk boundaries fall, and a write error ends the page.
func TestEscaper(t *testing.T) {
	text := strings.Repeat("é\"<&'>\u2028x", escapeChunk/9)
	p := &sharedPage{html: func(w io.Writer) error { _, err := io.WriteString(w, text); return err }, text: "\n" + text}
	var page bytes.Buffer
	if err := p.write(&page); err != nil {
		t.Fatal(err)
	}
	var frame, pre string
	for z := html.NewTokenizer(&page); z.Next() != html.ErrorToken; {
		switch token := z.Token(); token.Data {
		case "iframe":
			for _, a := range token.Attr {
				if a.Key == "srcdoc" {
					frame = a.Val
				}
			}
		case "pre":
			if token.Type == html.StartTagToken {
				z.Next()
				pre = string(z.Text())
			}
		}
	}
	if frame != text || pre != "\n\n"+text {
		t.Errorf("the frame has %d bytes and the text %d, want %d and two more", len(frame), len(pre), len(text))
	}
	written := 0
	broken := errors.New("the client is gone")
	p.html = func(w io.Writer) error {
		for range 100 {
			if _, err := io.WriteString(w, text); err != nil {
				return err
			}
			written++
		}
		return nil
	}
	if err := p.write(failing{broken}); !errors.Is(err, broken) || written > 1 {
		t.Errorf("%v after %d texts", err, written)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
