package engine

import (
	"bytes"
	"fmt"
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// exact is the greatest integer up to which every one is a float64.
const exact = 1<<53 - 1

// CheckNumbers refuses JSON with a number that is not from -exact to exact: steps would have another one. The error is an
// Invalid fault whose field is the place of the number, as in payload.items[2].id. What is not JSON it does not refuse.
func CheckNumbers(place string, text []byte) error {
	d := jsontext.NewDecoder(bytes.NewReader(text))
	for {
		token, err := d.ReadToken()
		if err != nil {
			return nil
		}
		if token.Kind() != jsontext.KindNumber {
			continue
		}
		if n, err := strconv.ParseFloat(token.String(), 64); err != nil || math.Abs(n) > exact {
			return invalid(placeOf(place, d), "must be a number from -%d to %[1]d. Send others, such as long ids, as texts.",
				int64(exact))
		}
	}
}

// placeOf is the place of the value that a decoder has just read.
func placeOf(place string, d *jsontext.Decoder) string {
	level := 0
	for token := range d.StackPointer().Tokens() {
		level++
		if kind, _ := d.StackIndex(level); kind == jsontext.KindBeginArray {
			place += "[" + token + "]"
		} else {
			place = fmt.Sprintf("%s.%.100s", place, token)
		}
	}
	return place
}
