package dashboard

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
)

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		top   float64
		whole bool
		want  string
	}{
		{62000, true, "[0 20000 40000 60000]"}, {1, true, "[0 1]"}, {3, true, "[0 1 2 3]"}, {4, true, "[0 1 2 3 4]"},
		{10, true, "[0 5 10]"}, {0.14, false, "[0 0.05 0.1]"}, {60, false, "[0 20 40 60]"}, {7, false, "[0 2 4 6]"},
		{1e9, true, "[0 5e+08 1e+09]"},
	} {
		if got := fmt.Sprint(ticks(c.top, c.whole)); got != c.want {
			t.Errorf("ticks(%v) = %s, want %s", c.top, got, c.want)
		}
	}
}

func TestAxisNumbers(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 950: "950", 1500: "1.5k", 20000: "20k", 2.5e6: "2.5M", 3e9: "3G"} {
		if got := compact(v); got != want {
			t.Errorf("compact(%v) = %q, want %q", v, got, want)
		}
	}
	for _, c := range []struct {
		v    float64
		all  []float64
		want string
	}{{0, []float64{0, 20}, "0"}, {20, []float64{0, 20}, "20 %"}, {.05, []float64{0, .05}, "0.05 %"},
		{.1, []float64{0, .05}, "0.10 %"}, {.5, []float64{0, .5}, "0.5 %"}} {
		if got := percentLabel(c.v, c.all); got != c.want {
			t.Errorf("percentLabel(%v, %v) = %q, want %q", c.v, c.all, got, c.want)
		}
	}
	if got := percentText(math.NaN(), 1); got != "–" {
		t.Errorf("the unknown share is %q", got)
	}
}

func stepsOf(values ...[]float64) (all []step) {
	for i, v := range values {
		all = append(all, step{Label: fmt.Sprint(i), Full: fmt.Sprint("step ", i), Href: "/x", Text: "text", Values: v})
	}
	return all
}

func TestBars(t *testing.T) {
	c := bars(barChart{ID: "c"}, stepsOf([]float64{110, 0, 0}, []float64{0, 0, 0}, []float64{50, 25, 0.01},
		[]float64{math.NaN(), 5, 5}), "ok", "idle", "bad")
	var got []string
	for _, b := range c.Bars {
		for _, p := range b.Parts {
			got = append(got, strings.Join([]string{p.Class, p.X, p.Y, p.Width, p.Height}, " "))
		}
		got = append(got, "| "+b.X+" "+b.Width)
	}
	want := []string{"ok 4.17% 40 16.67% 220", "| 0% 25%", "| 25% 25%", "ok 54.17% 160 16.67% 100",
		"idle 54.17% 110 16.67% 50", "bad 54.17% 108.5 16.67% 1.5", "| 50% 25%", "idle 79.17% 250 16.67% 10",
		"bad 79.17% 240 16.67% 10", "| 75% 25%"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if c.Base != 260 || c.Height != 282 {
		t.Errorf("the chart is %d high, its base at %d", c.Height, c.Base)
	}
	c.remarkOn(2, "much")
	if c.Remark == nil || c.Remark.X != "62.5%" || c.Remark.Anchor != "end" || c.Remark.Y2 != "106.5" {
		t.Errorf("the remark is %+v", c.Remark)
	}
	c.remarkOn(3, "late")
	if c.Remark.X != "87.5%" { // the text of the link over the bar begins at the edge instead
		t.Errorf("the remark on the last bar is %+v", c.Remark)
	}
	empty := bars(barChart{}, nil, "ok")
	if len(empty.Bars) != 0 || len(empty.Ticks) != 2 {
		t.Errorf("an empty chart is %+v", empty)
	}
	empty.remarkOn(3, "none")
}

func TestLines(t *testing.T) {
	none := math.NaN()
	for _, c := range []struct {
		name         string
		values       []float64
		limit, least float64
		path, end    string
	}{
		{"whole", []float64{0, 10, 5}, 0, 20, "M0 190L50 105L100 147.5", "100% 147.5"},
		{"gap", []float64{0, none, 5}, 0, 20, "M0 190h.01M100 147.5h.01", "100% 147.5"},
		{"ends early", []float64{0, 10, none}, 0, 20, "M0 190L50 105", "50% 105"},
		{"nothing", []float64{none, none}, 0, 20, "", " "},
		{"one step", []float64{10}, 0, 20, "M100 105h.01", "100% 105"},
		{"limit", []float64{0, 0}, 5, 0, "M0 190L100 190", "100% 190"},
	} {
		var values [][]float64
		for _, v := range c.values {
			values = append(values, []float64{v})
		}
		got := lines(lineChart{}, stepsOf(values...), c.limit, c.least, [2]string{"Rate", "a"})
		l := got.Lines[0]
		if l.Path != c.path || l.EndX+" "+l.EndY != c.end || (got.Limit != nil) != (c.limit > 0) {
			t.Errorf("%s: %+v, limit %v", c.name, l, got.Limit)
		}
	}
	numbers := lines(lineChart{Numbers: true}, stepsOf([]float64{1}, []float64{2}), 0, 4, [2]string{"Opened", "a"})
	for i, tick := range numbers.Ticks {
		if want := strconv.Itoa(i); tick.Label != want {
			t.Errorf("tick %d of a chart of numbers is %q", i, tick.Label)
		}
	}
	two := lines(lineChart{}, stepsOf([]float64{1, 1.2}, []float64{1, 1.2}), 0, 20, [2]string{"A", "a"},
		[2]string{"B", "b"})
	if two.Lines[0].TextY == two.Lines[1].TextY {
		t.Errorf("two names lie over each other: %+v", two.Lines)
	}
}

func TestLabels(t *testing.T) {
	for n, want := range map[int]int{0: 0, 1: 1, 7: 7, 9: 9, 10: 5, 24: 8, 30: 8, 90: 9, 168: 9} {
		if got := len(labels(make([]step, n), barLabels, func(int) float64 { return 0 })); got != want {
			t.Errorf("%d steps have %d labels, want %d", n, got, want)
		}
	}
}

func TestWaiting(t *testing.T) {
	for _, c := range []struct {
		name string
		all  []counted
		want []int
	}{
		{"all are delivered", []counted{{Sent: 5, Delivered: 5}, {Sent: 3, Bounced: 1, Failed: 2}}, []int{0, 0}},
		{"delivered on the next day", []counted{{Sent: 5, Delivered: 3}, {Sent: 3, Delivered: 5}}, []int{0, 0}},
		{"the newest wait", []counted{{Sent: 5, Delivered: 5}, {Sent: 8, Delivered: 2}}, []int{0, 6}},
		{"more wait than the newest day sent", []counted{{Sent: 9, Delivered: 2}, {Sent: 1}}, []int{7, 1}},
		{"outcomes of emails that were sent before the span", []counted{{Delivered: 9}, {Sent: 2}}, []int{0, 0}},
	} {
		waiting(c.all)
		for i, n := range c.all {
			if n.Waiting != c.want[i] {
				t.Errorf("%s: %d wait in period %d, want %d", c.name, n.Waiting, i, c.want[i])
			}
		}
	}
}

// A figure of opens is no rate if most of the opened emails were delivered before the span.
func TestOpenedFigure(t *testing.T) {
	for _, c := range []struct {
		n           counted
		value, says string
	}{
		{counted{Delivered: 300, Opened: 150, Clicked: 30}, "50.0 %", "Clicked 10.0 %, people only"},
		{counted{Delivered: 300, Opened: 300, Clicked: 300}, "100.0 %", "Clicked 100.0 %, people only"},
		{counted{Delivered: 300, Opened: 1690, Clicked: 69}, "1,690", "Clicked 69, with emails from before"},
		{counted{Opened: 1}, "1", "Clicked 0, with emails from before"},
		{counted{}, "–", "Clicked –, people only"},
	} {
		all := figures(&c.n, &counted{})
		if got := all[len(all)-1]; got.Value != c.value || got.Says != c.says {
			t.Errorf("%+v is %+v", c.n, got)
		}
	}
	if n := (counted{Delivered: 300, Opened: 690}); n.OpenRate() != "–" {
		t.Errorf("a row has the rate %s", n.OpenRate())
	}
}
