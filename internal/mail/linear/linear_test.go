package linear

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// Sizes of the two inputs, in bytes, and limits on the work.
const (
	small  = 8 << 10
	factor = 8
	growth = 2 * factor // maximum growth of the work if the input grows by factor; quadratic work would grow by factor²
	// This many steps or allocated bytes per input byte are always accepted, even if the work grows faster than growth.
	// Some parser limits take effect only for larger inputs.
	few    = 8
	most   = 500 // maximum steps per byte
	memory = 128 // maximum allocated bytes per byte
)

// work is the amount of work that a parser does for one input, in steps and allocated bytes.
type work struct{ steps, bytes float64 }

func measure(parse func(input string), input string) work {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	n := steps()
	parse(input)
	n = steps() - n
	runtime.ReadMemStats(&after)
	return work{float64(n), float64(after.TotalAlloc - before.TotalAlloc)}
}

// fill returns an input of about size bytes that consists of head and copies of a string.
func fill(head, repeated string, size int) string {
	return head + strings.Repeat(repeated, max(1, (size-len(head))/len(repeated)))
}

// TestWorkIsLinear runs every parser on hostile inputs of two sizes and compares the work.
func TestWorkIsLinear(t *testing.T) {
	if !counting {
		runCounted(t)
		return
	}
	findsSquares(t)
	for _, p := range parsers() {
		p.parse(fill(p.head, p.inputs[0], small)) // initializes look-up tables before the measurement
		for _, repeated := range p.inputs {
			a := measure(p.parse, fill(p.head, repeated, small))
			b := measure(p.parse, fill(p.head, repeated, small*factor))
			if verdict := judge(a, b); verdict != "" {
				t.Errorf("%s: %.80q: %s: from %.0f steps and %.0f bytes to %.0f and %.0f", p.name, repeated, verdict, a.steps,
					a.bytes, b.steps,
					b.bytes)
			}
		}
	}
}

func judge(a, b work) string {
	const n = small * factor
	switch {
	case b.steps == 0:
		return "nothing is counted"
	case b.steps > growth*a.steps && b.steps > few*n:
		return fmt.Sprintf("%.1f times the steps for %d times the size", b.steps/a.steps, factor)
	case b.steps > most*n:
		return fmt.Sprintf("%.0f steps for each byte", b.steps/n)
	case b.bytes > growth*a.bytes && b.bytes > few*n:
		return fmt.Sprintf("%.1f times the memory for %d times the size", b.bytes/a.bytes, factor)
	case b.bytes > memory*n:
		return fmt.Sprintf("%.0f bytes of memory for each byte", b.bytes/n)
	}
	return ""
}

// findsSquares checks that the counters detect quadratic work.
func findsSquares(t *testing.T) {
	t.Helper()
	for name, parse := range map[string]func(string){
		"searches to the end": func(s string) {
			for ; s != ""; s = s[1:] {
				strings.Index(s, "--!>")
			}
		},
		"a byte to the end": func(s string) {
			for ; s != ""; s = s[1:] {
				strings.IndexByte(s, '!')
			}
		},
		"cuts that fail": func(s string) {
			for ; s != ""; s = s[1:] {
				strings.Cut(s, "!")
			}
		},
		"counts": func(s string) {
			for ; s != ""; s = s[1:] {
				_ = strings.Count(s, "!")
			}
		},
		"searches from the end": func(s string) {
			for ; s != ""; s = s[1:] {
				_ = strings.LastIndexByte(s, '!')
			}
		},
		"growing a string": func(s string) {
			all := ""
			for i := range s[:len(s)/64] {
				all += s[i*64 : i*64+64]
			}
			_ = all
		},
	} {
		a, b := measure(parse, fill("", "x", small/4)), measure(parse, fill("", "x", small/4*factor))
		if judge(a, b) == "" {
			t.Errorf("%s: from %.0f steps and %.0f bytes to %.0f and %.0f, and nothing found", name, a.steps, a.bytes, b.steps,
				b.bytes)
		}
	}
	ok := func(s string) {
		for s != "" {
			_, s, _ = strings.Cut(s, "x")
		}
	}
	if verdict := judge(measure(ok, fill("", "x", small)), measure(ok, fill("", "x", small*factor))); verdict != "" {
		t.Errorf("one pass: %s", verdict)
	}
}
