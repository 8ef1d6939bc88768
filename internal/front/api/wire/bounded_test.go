package wire

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// Endpoint panics if a request type contains a list, a map or another type without a size limit.
func TestRequestTypesAreBounded(t *testing.T) {
	t.Parallel()
	type tags struct {
		Names []string `json:"names"`
	}
	for _, in := range []any{[]string{}, map[string]int{}, struct{ A any }{}, struct{ A *tags }{}, Array[tags, ten]{},
		Object[[]int, ten]{},
		Optional[[]string]{}, struct{ A [2]int }{}, struct{ A bytes.Buffer }{}} {
		if unbounded(reflect.TypeOf(in), "in") == "" {
			t.Errorf("%T counts as bounded", in)
		}
	}
	for _, in := range []any{None{}, bodyIn{}, Array[nestedIn, ten]{}, Optional[string]{}, jsontext.Value{}} {
		if at := unbounded(reflect.TypeOf(in), "in"); at != "" {
			t.Errorf("%T counts as unbounded: %s", in, at)
		}
	}
}
