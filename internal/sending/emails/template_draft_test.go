package emails

import (
	"reflect"
	"testing"

	"github.com/postrider/postrider/internal/sending/content"
)

// A draft never contains the text of its template, because all drafts in a batch are in memory at the same time. A
// batch may have 100 drafts, each with a text of 4 MB.
func TestDraftsHoldNoContents(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var look func(reflect.Type)
	look = func(at reflect.Type) {
		if seen[at] {
			return
		}
		seen[at] = true
		switch at.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array:
			look(at.Elem())
		case reflect.Map:
			look(at.Key())
			look(at.Elem())
		case reflect.Struct:
			for f := range at.Fields() {
				look(f.Type)
			}
		}
	}
	look(reflect.TypeFor[draft]())
	if !seen[reflect.TypeFor[content.Ref]()] {
		t.Fatal("a draft does not refer to a content")
	}
	for _, held := range []reflect.Type{reflect.TypeFor[content.Compiled](), reflect.TypeFor[content.Content]()} {
		if seen[held] {
			t.Errorf("a draft holds a %s", held)
		}
	}
}
