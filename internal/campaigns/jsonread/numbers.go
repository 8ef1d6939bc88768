package jsonread

import (
	"bytes"
	"fmt"
	"math"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// MaxInteger is the limit up to which a float64 represents every integer exactly. Package jsonread accepts only numbers
// from -MaxInteger to MaxInteger.
const MaxInteger = 1<<53 - 1

// Number parses the JSON number at the given path.
func Number(path string, value jsontext.Value) (n float64, err error) {
	if value.Kind() != jsontext.KindNumber || json.Unmarshal(value, &n) != nil || math.Abs(n) > MaxInteger {
		return 0, Invalidf(path, "must be a number from -%d to %[1]d.", int64(MaxInteger))
	}
	return n, nil
}

// CheckNumbers returns an error if a JSON value contains a number beyond ±MaxInteger, which would be rounded. The
// error's field is the path of the number, such as payload.items[2].id. CheckNumbers does not return an error for
// invalid JSON.
func CheckNumbers(path string, text []byte) error {
	d := jsontext.NewDecoder(bytes.NewReader(text))
	for {
		token, err := d.ReadToken()
		if err != nil {
			return nil
		}
		if token.Kind() != jsontext.KindNumber {
			continue
		}
		if n, err := strconv.ParseFloat(token.String(), 64); err != nil || math.Abs(n) > MaxInteger {
			return Invalidf(decoderPath(path, d),
				"must be a number from -%d to %[1]d. Send others, such as long ids, as texts.", int64(MaxInteger))
		}
	}
}

// decoderPath returns the path of the value that a decoder has just read. The returned path begins with root, which is
// the path of the whole decoded value.
func decoderPath(root string, d *jsontext.Decoder) string {
	path, level := root, 0
	for token := range d.StackPointer().Tokens() {
		level++
		if kind, _ := d.StackIndex(level); kind == jsontext.KindBeginArray {
			path += "[" + token + "]"
		} else {
			path = fmt.Sprintf("%s.%.100s", path, token)
		}
	}
	return path
}
