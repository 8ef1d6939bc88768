package scalar

import (
	"math"
	"strings"
	"testing"
)

func TestOfNumber(t *testing.T) {
	for n, want := range map[float64]string{
		0: "0", math.Copysign(0, -1): "0", 1: "1", 1.5: "1.5", -2e-7: "-2e-7", MaxNumber: "9007199254740991",
	} {
		v := OfNumber(n)
		if v != (Value{Number, want}) || v.Number() != n {
			t.Errorf("OfNumber(%v) = %+v, and its Number is %v", n, v, v.Number())
		}
	}
	for _, v := range []Value{{}, OfText("1"), {Type: Other}, {Number, "one"}} {
		if n := v.Number(); !math.IsNaN(n) {
			t.Errorf("%+v is the number %v", v, n)
		}
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		value Value
		of    Type
		want  string // message of the error; "" for no error
	}{
		{OfText(""), String, ""},
		{OfText(strings.Repeat("é", MaxText)), String, ""},
		{OfText(strings.Repeat("é", MaxText+1)), String, "has 2001 characters; the limit is 2000"},
		{OfText("a\x00b"), String, "without NUL"},
		{OfText("a\xff"), String, "must be UTF-8"},
		{OfText("1"), Number, "must be a number"},
		{OfNumber(1), String, "must be a string"},
		{Value{Type: Other}, String, "must be a string"},
		{Value{Type: Other}, Number, "must be a number"},
		{Value{}, Number, "must be a number"},
		{OfNumber(-MaxNumber), Number, ""},
		{OfNumber(MaxNumber + 1), Number, "from -9007199254740991 to 9007199254740991"},
		{OfNumber(math.Inf(1)), Number, "from -9007199254740991"},
	} {
		err := c.value.Check("variables.x", c.of)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%.40q as %s: %v", c.value, c.of, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), "variables.x")):
			t.Errorf("%.40q as %s: %v; want %q and the field's name", c.value, c.of, err, c.want)
		}
	}
}
