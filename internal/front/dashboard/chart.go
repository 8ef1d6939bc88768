package dashboard

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// The charts are drawn as SVG by the templates in pages/chart.html. The functions in this file compute where everything
// lies: horizontally in percent, because the width of a page is unknown, and vertically in pixels. Text never scales.

// Heights of charts in pixels.
const (
	barsHeight  = 220
	linesHeight = 170
	tipHeight   = 40 // above the bars, for the figures of the step under the pointer and for a remark
	axisHeight  = 22 // below the plot
)

// The maximum numbers of labels below a chart of bars, and of lines, which is narrower.
const (
	barLabels  = 9
	lineLabels = 6
)

// axisMark is a grid line with its label.
type axisMark struct{ Label, Y, TextY string }

// axisLabel is a label below a chart. Every second one is left out on phones.
type axisLabel struct {
	Text, X string
	Second  bool
}

// barChart is a chart with a stack of parts for each step.
type barChart struct {
	ID, Title, Finding string
	Ticks              []axisMark
	Labels             []axisLabel
	Bars               []bar
	Remark             *remark
	Height, Base       int // of the whole drawing, and the y of the zero line
}

// bar is a step with its stack, and the link over both.
type bar struct {
	X, Width string // of the step
	Parts    []barPart
	stepLink
}

// barPart is a part of a stack. Class is ok, idle or bad.
type barPart struct{ Class, X, Y, Width, Height string }

// stepLink is the transparent link over a step of a chart. It shows the text while it is hovered or focused.
type stepLink struct{ Href, Text, Middle, Anchor string }

// remark marks the outlier of a chart in words.
type remark struct{ Text, X, Anchor, Y1, Y2 string }

// lineChart is a chart with up to two lines.
type lineChart struct {
	ID, Title, Finding string
	Ticks              []axisMark
	Labels             []axisLabel
	Lines              []chartLine
	Limit              *limitLine
	Steps              []lineStep
	Height, Base       int
	Decimals           bool // whether the labels of the grid lines need more space
	Numbers            bool // whether the values are numbers rather than percentages
}

// lineStep is a step of a line chart, with its link.
type lineStep struct {
	X, Width string
	stepLink
}

// chartLine is a line. Its path lies in a square of 100 by the chart's height, which is stretched.
type chartLine struct {
	Name, Class, Path string
	EndX, EndY, TextY string // of the last point; EndX is "" if the line has no point
}

// limitLine is a dashed line across a line chart.
type limitLine struct{ Y, TextY string }

// step is one step of a chart's axis, with the values of all its parts or lines. A value that is NaN is missing.
type step struct {
	Label, Full string // the label below the axis, and the name of the step in full
	Href        string // where its emails are listed, or "" if it has none
	Text        string // its figures in words
	Values      []float64
}

// bars computes a chart of stacks. The classes are those of the parts, from the bottom to the top.
func bars(c barChart, steps []step, classes ...string) barChart {
	c.Base = tipHeight + barsHeight
	c.Height = c.Base + axisHeight
	top := 0.0
	for _, s := range steps {
		top = max(top, sum(s.Values))
	}
	if top == 0 {
		top = 1
	}
	scale := barsHeight / top
	for _, v := range ticks(top, true) {
		c.Ticks = append(c.Ticks, tickAt(compact(v), float64(c.Base)-v*scale))
	}
	width := 100 / float64(max(len(steps), 1))
	for i, s := range steps {
		b := bar{X: percentOf(float64(i) * width), Width: percentOf(width), stepLink: linkAt(s, (float64(i)+.5)*width)}
		y := float64(c.Base)
		for k, v := range s.Values {
			if v <= 0 || math.IsNaN(v) {
				continue
			}
			h := max(v*scale, 1.5)
			y -= h
			b.Parts = append(b.Parts, barPart{classes[k], percentOf((float64(i) + 1./6) * width), px(y),
				percentOf(width * 2 / 3), px(h)})
		}
		c.Bars = append(c.Bars, b)
	}
	c.Labels = labels(steps, barLabels, func(i int) float64 { return (float64(i) + .5) * width })
	return c
}

// remarkOn marks the step with the given number in words.
func (c *barChart) remarkOn(i int, text string) {
	if i < 0 || i >= len(c.Bars) {
		return
	}
	b, y := c.Bars[i], float64(c.Base)
	for _, p := range b.Parts {
		y, _ = strconv.ParseFloat(p.Y, 64)
	}
	c.Remark = &remark{Text: text, X: percentOf(100 * (float64(i) + .5) / float64(len(c.Bars))), Anchor: "end",
		Y1: px(tipHeight - 6), Y2: px(max(y-2, tipHeight-6))}
	if i < len(c.Bars)/2 {
		c.Remark.Anchor = "start"
	}
}

// lines computes a chart of lines. The limit is drawn as a dashed line unless it is 0; least is the smallest value at
// the top of the scale. Each line has a name and a class: a, b, bad or note.
func lines(c lineChart, steps []step, limit, least float64, names ...[2]string) lineChart {
	c.Base = tipHeight/2 + linesHeight
	c.Height = c.Base + axisHeight
	top := max(least, limit*1.4)
	for _, s := range steps {
		for _, v := range s.Values {
			if !math.IsNaN(v) {
				top = max(top, v*1.1)
			}
		}
	}
	scale := linesHeight / top
	at := func(v float64) float64 { return float64(c.Base) - v*scale }
	all := ticks(top, c.Numbers)
	for _, v := range all {
		label := percentLabel(v, all)
		if c.Numbers {
			label = compact(v)
		}
		c.Ticks = append(c.Ticks, tickAt(label, at(v)))
	}
	c.Decimals = len(all) > 1 && all[1] < 1
	x := func(i int) float64 {
		if len(steps) < 2 {
			return 100
		}
		return 100 * float64(i) / float64(len(steps)-1)
	}
	for k, name := range names {
		l := chartLine{Name: name[0], Class: name[1]}
		var path strings.Builder
		drawn := false // whether the step before has a value
		for i, s := range steps {
			v := s.Values[k]
			if math.IsNaN(v) {
				drawn = false
				continue
			}
			verb := "L"
			if !drawn {
				verb = "M"
			}
			fmt.Fprintf(&path, "%s%s %s", verb, short(x(i)), short(at(v)))
			if !drawn && (i+1 == len(steps) || math.IsNaN(steps[i+1].Values[k])) {
				path.WriteString("h.01") // a single point between gaps
			}
			drawn = true
			l.EndX, l.EndY, l.TextY = percentOf(x(i)), px(at(v)), px(at(v)+4)
		}
		l.Path = path.String()
		c.Lines = append(c.Lines, l)
	}
	spread(c.Lines)
	if limit > 0 {
		c.Limit = &limitLine{px(at(limit)), px(at(limit) + 4)}
		for i := range c.Lines { // the name of the line gives way to that of the limit
			y, err := strconv.ParseFloat(c.Lines[i].TextY, 64)
			if err == nil && math.Abs(y-at(limit)-4) < 14 {
				c.Lines[i].TextY = px(at(limit) + 18)
			}
		}
	}
	width := 100 / float64(max(len(steps), 1))
	for i, s := range steps {
		c.Steps = append(c.Steps, lineStep{percentOf(float64(i) * width), percentOf(width), linkAt(s, x(i))})
	}
	c.Labels = labels(steps, lineLabels, x)
	return c
}

// spread moves the names of two lines apart if they would overlap.
func spread(all []chartLine) {
	if len(all) != 2 || all[0].EndX == "" || all[1].EndX == "" {
		return
	}
	a, _ := strconv.ParseFloat(all[0].TextY, 64)
	b, _ := strconv.ParseFloat(all[1].TextY, 64)
	if short := 14 - math.Abs(a-b); short > 0 {
		if a > b {
			a, b = a+short/2, b-short/2
		} else {
			a, b = a-short/2, b+short/2
		}
		all[0].TextY, all[1].TextY = px(a), px(b)
	}
}

// linkAt returns the link over a step whose middle lies at x percent.
func linkAt(s step, x float64) stepLink {
	l := stepLink{Href: s.Href, Text: s.Full + ": " + s.Text, Middle: percentOf(x), Anchor: "middle"}
	switch {
	case x < 35:
		l.Middle, l.Anchor = "0", "start"
	case x > 65:
		l.Middle, l.Anchor = "100%", "end"
	}
	return l
}

// labels chooses the steps that get a label. The first one always has one.
func labels(steps []step, most int, x func(i int) float64) (all []axisLabel) {
	every := (len(steps) + most - 1) / most
	for i := 0; i < len(steps); i += max(every, 1) {
		all = append(all, axisLabel{steps[i].Label, percentOf(x(i)), len(all)%2 == 1})
	}
	return all
}

// ticks returns the values of three to five grid lines from 0 to at most top.
func ticks(top float64, whole bool) []float64 {
	unit := math.Pow(10, math.Floor(math.Log10(top/3)))
	by := unit
	for _, f := range []float64{1, 2, 5, 10} {
		by = f * unit
		if top/by < 4.5 {
			break
		}
	}
	if whole {
		by = max(by, 1)
	}
	var all []float64
	for i := 0; float64(i)*by <= top*1.0001; i++ {
		all = append(all, float64(i)*by)
	}
	return all
}

// compact formats a number for an axis, such as 20k and 1.5M.
func compact(v float64) string {
	switch {
	case v >= 1e9:
		return short(v/1e9) + "G"
	case v >= 1e6:
		return short(v/1e6) + "M"
	case v >= 1e3:
		return short(v/1e3) + "k"
	}
	return short(v)
}

// percentLabel formats a percentage for an axis, with as many decimals as its neighbours need.
func percentLabel(v float64, all []float64) string {
	if v == 0 {
		return "0"
	}
	decimals := 0
	if len(all) > 1 {
		decimals = max(0, int(math.Ceil(-math.Log10(all[1])-1e-9)))
	}
	return strconv.FormatFloat(v, 'f', decimals, 64) + " %"
}

func tickAt(label string, y float64) axisMark { return axisMark{label, px(y), px(y + 4)} }

func sum(all []float64) (n float64) {
	for _, v := range all {
		if !math.IsNaN(v) {
			n += v
		}
	}
	return n
}

func short(v float64) string     { return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64) }
func px(v float64) string        { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) }
func percentOf(v float64) string { return short(v) + "%" }

// share returns a percentage, or NaN if the whole is 0.
func share(part, whole int) float64 {
	if whole <= 0 {
		return math.NaN()
	}
	return 100 * float64(part) / float64(whole)
}

// partOf is like share, but returns NaN if the part is greater than the whole.
func partOf(part, whole int) float64 {
	if part > whole {
		return math.NaN()
	}
	return share(part, whole)
}

// percentText formats a percentage with a number of decimals, and a dash if it is unknown.
func percentText(v float64, decimals int) string {
	if math.IsNaN(v) {
		return "–"
	}
	return strconv.FormatFloat(v, 'f', decimals, 64) + " %"
}
