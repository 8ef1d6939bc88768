package importfrom

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/postrider/postrider/internal/platform/page"
)

// object is an object of this installation that a record of a source may stand for.
type object struct {
	id      string
	created time.Time
	closed  bool // no record may stand for it, but its name is taken
}

// index finds the objects of the team by their natural keys.
type index struct {
	byKey   map[string][]object // oldest first
	matched map[string]bool
}

// newIndex reads a list, newest first, with the given function for one page.
func newIndex[T any](matched map[string]bool, list func(p page.Page) ([]T, bool, error),
	describe func(*T) (keys []string, o object)) (*index, error) {
	x := &index{map[string][]object{}, matched}
	var all []T
	for p := (page.Page{Limit: 100}); ; {
		some, more, err := list(p)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
		if !more || len(some) == 0 {
			break
		}
		_, last := describe(&some[len(some)-1])
		p.After = last.id
	}
	for i := len(all) - 1; i >= 0; i-- {
		keys, o := describe(&all[i])
		for _, key := range keys {
			x.add(key, o)
		}
	}
	return x, nil
}

func (x *index) add(key string, o object) { x.byKey[key] = append(x.byKey[key], o) }

// match finds the oldest object with a key that corresponds to no record yet, and marks it.
func (x *index) match(key string) (object, bool) {
	for _, o := range x.byKey[key] {
		if !o.closed && !x.matched[o.id] {
			x.matched[o.id] = true
			return o, true
		}
	}
	return object{}, false
}

// total returns the number of objects, if each has one key.
func (x *index) total() (n int) {
	for _, all := range x.byKey {
		n += len(all)
	}
	return n
}

// created adds an object that the import has just created for a record.
func (x *index) created(key string, o object) {
	x.matched[o.id] = true
	x.add(key, o)
}

// matchName is like match, for names that should be unique. If other records already have the name, it tries the name
// with a number. It returns the name for an object to create if it finds none.
func (x *index) matchName(name string, most int) (o object, free string, found bool) {
	for n := 1; ; n++ {
		free = shorten(name, most)
		if n > 1 {
			suffix := fmt.Sprintf(" (%d)", n)
			free = shorten(name, most-len(suffix)) + suffix
		}
		if o, found = x.match(free); found || len(x.byKey[free]) == 0 {
			return o, free, found
		}
	}
}

// shorten cuts a text to a number of characters.
func shorten(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most])
}
